"""Change of the logits under rotations of the input: invariant for classes, equivariant for voxels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.rotations import input_type, rotate_input
from steerformer.fields import FieldType


@dataclass(frozen=True)
class LogitChange:
    r"""Relative change of the logits of a batch, $\|f(Rx) - f(x)\| / \|f(x) - \bar f\|$, over some rotations.

    It is relative to the spread of the logits over samples (or voxels): an offset that all share carries no
    information, and would make changes look small. Logits of voxels are compared with $R f(x)$.
    """

    rotations: int
    mean: float
    worst: float
    """The largest over rotations."""
    agreement: float
    """Share of predictions that do not change."""


def logit_change(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    mode: str = "bilinear",
) -> LogitChange:
    """Compare the logits of ``x`` with those of ``x`` rotated by each rotation.

    Rotations of the grid are exact. Others interpolate ``x``, so the input changes as well as the model's response; for
    the model alone see :func:`~steerformer.audit.layer_errors`.
    """
    if not rotations:
        raise ValueError("logit_change needs at least one rotation, got none.")
    input_type(model)
    pairs = ((rotate_input(model, x, R, mode=mode), partial(_rotated_logits, model, R=R)) for R in rotations)
    return _compare(model, x, pairs)


def interpolation_change(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    mode: str = "bilinear",
) -> LogitChange:
    """Compare the logits of ``x`` with those of ``x`` rotated there and back: what interpolation alone changes."""

    def back(R: Tensor) -> Tensor:
        return rotate_input(model, rotate_input(model, x, R, mode=mode), R.mT, mode=mode)

    return _compare(model, x, ((back(R), lambda logits: logits) for R in rotations))


def _compare(model: nn.Module, x: Tensor, others: Iterable[tuple[Tensor, Callable[[Tensor], Tensor]]]) -> LogitChange:
    """Logits of other inputs beside those expected from the logits of ``x``."""
    with torch.no_grad():
        upright = model(x)
        size = (upright - upright.mean(dim=[axis for axis in range(upright.ndim) if axis != 1], keepdim=True)).norm()
        if not size > 0:
            raise ValueError("the logits of all samples are the same, so there is nothing to compare a change with.")
        changes, same = [], []
        for other, expect in others:
            logits, expected = model(other), expect(upright)
            changes.append(((logits - expected).norm() / size).item())
            same.append((logits.argmax(1) == expected.argmax(1)).double().mean().item())
    return LogitChange(len(changes), fmean(changes), max(changes), fmean(same))


def combine_changes(changes: Sequence[LogitChange]) -> LogitChange:
    """Combine several batches under the same rotations: means, and the worst of all."""
    means, shares = (fmean(getattr(change, key) for change in changes) for key in ("mean", "agreement"))
    return LogitChange(changes[0].rotations, means, max(change.worst for change in changes), shares)


def _rotated_logits(model: nn.Module, logits: Tensor, R: Tensor) -> Tensor:
    """The expected logits: unchanged for samples, rotated for voxels."""
    if logits.ndim == 2:
        return logits
    out_type = model.out_type
    assert isinstance(out_type, FieldType)
    return out_type.rotate(logits, R)
