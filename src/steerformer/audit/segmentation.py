"""All that ``steerformer check`` measures of a model that segments, as one value."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steerformer.audit.check import TOLERANCE, scene_errors
from steerformer.audit.layers import LayerError, layer_errors
from steerformer.audit.logits import LogitChange, joined, logit_change
from steerformer.audit.rotations import about, input_type, random_rotations, sweep_axes, turn
from steerformer.audit.sweep import Case, Sweep, sweep
from steerformer.infer import Appetite
from steerformer.infer.windows import choose_window
from steerformer.testing import grid_rotations_keeping

_LAYER_SIDE = {2: 64, 3: 24}
_LAYER_CASES = 2
_COPIES = 4  # of all logits: upright, turned before and after, and their difference


@dataclass(frozen=True)
class SegmentationCheck:
    """Figures of one model, and of another beside it."""

    cases: tuple[str, ...]
    grid: LogitChange
    """Logits under rotations of the grid against logits that are turned: exact, nothing interpolated."""
    layers_grid: list[LayerError]
    """Errors of layers under a rotation of the grid, on pieces of cases."""
    layers_arbitrary: list[LayerError]
    """Errors of layers under random rotations, on smooth scenes that are turned as formulas; none for voxels that are
    longer along one axis, between which splines cannot tell."""
    sweep: Sweep
    control: Sweep | None
    """The same of another model."""

    @property
    def is_equivariant(self) -> bool:
        """Whether logits turn with the input under the grid's own rotations."""
        return self.grid.worst <= TOLERANCE

    def as_json(self) -> dict[str, Any]:
        """For ``check.json``."""
        return {**asdict(self), "is_equivariant": self.is_equivariant, "tolerance": TOLERANCE}


def check_segmentation(
    model: nn.Module,
    cases: Sequence[Case],
    *,
    angles: Sequence[float | int],
    rotations: int = 4,
    control: tuple[nn.Module, Sequence[Case]] | None = None,
    memory: int | None = None,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> SegmentationCheck:
    """Turn cases and scenes, and see what the model makes of them.

    Args:
        cases: as the model is to see them.
        angles: in degrees, about each axis of :func:`~steerformer.audit.sweep_axes`.
        rotations: random ones, beside the angles.
        control: another model, and the same cases as that one is to see them.
        memory: bytes that the process may have at its peak.
        progress: called once for each rotation of each model.
    """
    group = input_type(model).group
    spacing = getattr(getattr(model, "config", None), "spacing", None)
    turns = _turns(model, spacing)
    some = random_rotations(group, max(rotations, 3), seed=seed)
    pieces = _pieces(cases, _LAYER_SIDE[group.dim])
    swept = [
        sweep(tried, shown, angles=angles, rotations=some[:rotations], memory=memory, progress=progress)
        for tried, shown in ((model, cases), *([control] if control else []))
    ]
    return SegmentationCheck(
        cases=tuple(case.name for case in cases),
        grid=joined(
            [logit_change(model, _that_fits(model, case.x, memory)[None], turns) for case in cases[:_LAYER_CASES]]
        ),
        layers_grid=layer_errors(model, pieces, [(R, turn(model, pieces, R)) for R in turns]),
        layers_arbitrary=scene_errors(model, pieces, some[:3], seed=seed) if len(set(spacing or ())) < 2 else [],
        sweep=swept[0],
        control=swept[1] if control else None,
    )


def _turns(model: nn.Module, spacing: Sequence[float] | None) -> list[Tensor]:
    """Quarter turns about all axes, from which all rotations of the grid are made; half turns where voxels are long."""
    group = input_type(model).group
    kept = [R.tolist() for R in grid_rotations_keeping(group, spacing)]
    turns = [about(group, angle, axis) for axis in sweep_axes(group).values() for angle in (90, 180)]
    return [R for R in turns if R.tolist() in kept]


def _that_fits(model: nn.Module, x: Tensor, memory: int | None) -> Tensor:
    """The middle of a case, as much as fits: windows that are joined would not turn exactly, a smaller case does."""
    classes, size = int(model.out_type.channels), x.shape[1:]  # type: ignore[union-attr, arg-type]
    kept = _COPIES * classes * x[0].nbytes
    sides = choose_window(Appetite(model), size, classes, memory, kept=kept)
    starts = [(n - side) // 2 for n, side in zip(size, sides, strict=True)]
    return x[(slice(None), *(slice(start, start + side) for start, side in zip(starts, sides, strict=True)))]


def _pieces(cases: Sequence[Case], side: int) -> Tensor:
    """The middle of some cases, all of one square or cubic shape: what is smaller lies among zeros."""
    pieces = []
    for case in cases[:_LAYER_CASES]:
        missing = [side - n for n in case.x.shape[:0:-1]]  # the last axis first, as pad wants it
        pieces.append(F.pad(case.x, [margin for m in missing for margin in (m // 2, m - m // 2)]))
    return torch.stack(pieces)
