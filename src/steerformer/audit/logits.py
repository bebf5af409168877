"""Do the logits stay when the input turns?"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.rotations import turn


@dataclass(frozen=True)
class LogitChange:
    r"""Change of the logits of a batch, $\|f(Rx) - f(x)\| / \|f(x) - \bar f\|$, over some rotations.

    It is relative to how logits differ from sample to sample: what they all share says nothing about a sample, and
    would make changes look small.
    """

    rotations: int
    mean: float
    worst: float
    """Of the rotation that changes them most."""
    agreement: float
    """Share of predictions that stay."""


def logit_change(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    mode: str = "bilinear",
) -> LogitChange:
    """Compare the logits of ``x`` with those of ``x`` turned by each rotation.

    Rotations of the grid turn ``x`` exactly. Others interpolate it, so what changes is the input as well as the model's
    answer; for a measure of the model alone see :func:`~steerformer.audit.layer_errors`.
    """
    if not rotations:
        raise ValueError("logit_change needs at least one rotation, got none.")
    with torch.no_grad():
        upright = model(x)
        turned = [model(turn(model, x, R, mode=mode)) for R in rotations]
    size = (upright - upright.mean(dim=0)).norm()
    if not size > 0:
        raise ValueError("the logits of all samples are the same, so there is nothing to compare a change with.")
    changes = [((logits - upright).norm() / size).item() for logits in turned]
    same = [(logits.argmax(1) == upright.argmax(1)).double().mean().item() for logits in turned]
    count = len(changes)
    return LogitChange(count, sum(changes) / count, max(changes), sum(same) / count)
