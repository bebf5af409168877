"""Do the logits stay when the input turns? Those of every voxel turn with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.rotations import input_type, turn
from steerformer.fields import FieldType


@dataclass(frozen=True)
class LogitChange:
    r"""Change of the logits of a batch, $\|f(Rx) - f(x)\| / \|f(x) - \bar f\|$, over some rotations.

    It is relative to how logits differ from sample to sample (those of voxels, from voxel to voxel): what they all
    share says nothing about a sample, and would make changes look small. Logits of voxels are compared with $R f(x)$.
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
    input_type(model)
    with torch.no_grad():
        upright = model(x)
        size = (upright - upright.mean(dim=[axis for axis in range(upright.ndim) if axis != 1], keepdim=True)).norm()
        if not size > 0:
            raise ValueError("the logits of all samples are the same, so there is nothing to compare a change with.")
        changes, same = [], []
        for R in rotations:
            logits, expected = model(turn(model, x, R, mode=mode)), _turned_logits(model, upright, R)
            changes.append(((logits - expected).norm() / size).item())
            same.append((logits.argmax(1) == expected.argmax(1)).double().mean().item())
    return LogitChange(len(changes), fmean(changes), max(changes), fmean(same))


def joined(changes: Sequence[LogitChange]) -> LogitChange:
    """Those of several batches under the same rotations: means, and the worst of all."""
    means, shares = (fmean(getattr(change, key) for change in changes) for key in ("mean", "agreement"))
    return LogitChange(changes[0].rotations, means, max(change.worst for change in changes), shares)


def _turned_logits(model: nn.Module, logits: Tensor, R: Tensor) -> Tensor:
    """What they should become: those of a sample stay, those of voxels move with the voxels."""
    if logits.ndim == 2:
        return logits
    out_type = model.out_type
    assert isinstance(out_type, FieldType)
    return out_type.rotate(logits, R)
