"""The equivariance check of a model: logits, layers, and accuracy or Dice against angle."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from steerformer.audit.budget import LayerBudget, error_budget
from steerformer.audit.layers import LayerError, layer_errors
from steerformer.audit.logits import LogitChange, combine_changes, interpolation_change, logit_change
from steerformer.audit.rotations import input_type, random_rotations, rotate_input, rotation_about, sweep_axes
from steerformer.audit.sweeps import DiceSweep, accuracy_by_angle, dice_sweep
from steerformer.audit.verdict import TOLERANCE, Verdict
from steerformer.infer import WindowMemory
from steerformer.infer.windows import choose_window
from steerformer.io.scans import Scan
from steerformer.testing import blobs, grid_rotations_preserving

_LAYER_SAMPLES = 8
_SCENES = {2: 16, 3: 4}
_LAYER_CASES = 2
_LAYER_SIDE = {2: 64, 3: 24}
_LOGIT_COPIES = 4  # held at once: upright, rotated before and after, and their difference


@dataclass(frozen=True)
class _Check(ABC):
    """What checks of classifiers and of segmentation models share."""

    grid: LogitChange
    """Logits under rotations of the grid: exact, nothing interpolated."""
    layers_grid: list[LayerError]
    """Errors of layers under rotations of the grid."""
    layers_arbitrary: list[LayerBudget]
    """Error budget of the layers under random rotations, on smooth analytic scenes; empty for anisotropic voxels,
    between which splines cannot interpolate."""

    @property
    @abstractmethod
    def lost(self) -> float | None:
        """Agreement lost at arbitrary angles, beyond what interpolation costs; see :class:`Verdict`."""

    @property
    def verdict(self) -> Verdict:
        """pass, weak or fail, for rotations of the grid and for all others."""
        return Verdict(self.grid.worst, self.lost)

    @property
    def is_equivariant(self) -> bool:
        """Whether logits commute with rotations of the grid, up to rounding."""
        return self.verdict.is_exact

    def as_json(self) -> dict[str, Any]:
        """As written to ``check.json``."""
        verdict = {"verdict": self.verdict.grade, "lost": self.lost}
        return {**asdict(self), **verdict, "is_equivariant": self.is_equivariant, "tolerance": TOLERANCE}


@dataclass(frozen=True)
class ClassifierCheck(_Check):
    """The check of a classifier."""

    samples: int
    arbitrary: LogitChange
    """Logits under random rotations: the samples are interpolated."""
    interpolation: LogitChange
    """Logits of samples that are rotated there and back: the cost of interpolation alone."""
    angles: list[float]
    accuracy: dict[str, list[float]]
    """Accuracy at each angle, by axis."""

    @property
    def lost(self) -> float | None:
        return max(self.interpolation.agreement - self.arbitrary.agreement, 0.0)


@dataclass(frozen=True)
class SegmentationCheck(_Check):
    """The check of a segmentation model, optionally beside another one."""

    cases: tuple[str, ...]
    sweep: DiceSweep
    control: DiceSweep | None
    """The sweep of the other model."""

    @property
    def lost(self) -> float | None:
        tried = self.sweep.away_from_the_grid()
        return max(fmean(scores.ceiling - scores.agreement for scores in tried), 0.0) if tried else None


def check_classifier(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    labels: Int[Tensor, "batch"],
    *,
    angles: Sequence[float | int] = tuple(range(0, 361, 15)),
    rotations: int = 8,
    mode: str = "bilinear",
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> ClassifierCheck:
    """Rotate samples and scenes and compare the responses; ``progress`` is called once for each angle and axis."""
    group = input_type(model).group
    grid = list(group.grid_rotations()[1:])
    some = random_rotations(group, rotations, seed=seed)
    few = x[:_LAYER_SAMPLES]
    return ClassifierCheck(
        samples=len(x),
        grid=logit_change(model, x, grid),
        arbitrary=logit_change(model, x, some, mode=mode),
        interpolation=interpolation_change(model, x, some, mode=mode),
        layers_grid=layer_errors(model, few, [(R, rotate_input(model, few, R)) for R in _not_involutions(grid)]),
        layers_arbitrary=scene_budget(model, x, some[:3], seed=seed),
        angles=[float(angle) for angle in angles],
        accuracy=accuracy_by_angle(model, x, labels, angles, mode=mode, progress=progress),
    )


def check_segmentation(
    model: nn.Module,
    cases: Sequence[Scan],
    *,
    angles: Sequence[float | int],
    rotations: int = 4,
    control: tuple[nn.Module, Sequence[Scan]] | None = None,
    memory: int | None = None,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> SegmentationCheck:
    """Rotate cases and scenes and compare the responses.

    Args:
        cases: preprocessed for the model, with labels.
        angles: in degrees, about each axis of :func:`~steerformer.audit.sweep_axes`.
        rotations: number of random rotations besides the angles.
        control: another model, and the same cases preprocessed for it.
        memory: limit for the peak memory of the process in bytes.
        progress: called once for each rotation of each model.
    """
    group = input_type(model).group
    spacing = getattr(getattr(model, "config", None), "spacing", None)
    grid = _generating_rotations(model, spacing)
    some = random_rotations(group, max(rotations, 3), seed=seed)
    pieces = _central_pieces(cases, _LAYER_SIDE[group.dim])
    sweeps = [
        dice_sweep(tried, shown, angles=angles, rotations=some[:rotations], memory=memory, progress=progress)
        for tried, shown in ((model, cases), *([control] if control else []))
    ]
    return SegmentationCheck(
        cases=tuple(case.name for case in cases),
        grid=combine_changes(
            [logit_change(model, _part_that_fits(model, case.x, memory)[None], grid) for case in cases[:_LAYER_CASES]]
        ),
        layers_grid=layer_errors(model, pieces, [(R, rotate_input(model, pieces, R)) for R in grid]),
        layers_arbitrary=scene_budget(model, pieces, some[:3], seed=seed) if len(set(spacing or ())) < 2 else [],
        sweep=sweeps[0],
        control=sweeps[1] if control else None,
    )


def scene_budget(
    model: nn.Module,
    samples: Float[Tensor, "batch channels *space"],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    seed: int = 0,
) -> list[LayerBudget]:
    """Error budget of the layers on smooth analytic scenes: no input is interpolated.

    A trained model expects inputs like its training data, so scenes match the size, scale and sign of ``samples``.
    """
    size, in_type = tuple(samples.shape[2:]), input_type(model)
    batch = _SCENES[in_type.group.dim]
    scene = blobs(in_type, batch=batch, sigma=2.0, extent=min(size) / 8, seed=seed)
    if samples.min() >= 0:
        scene = replace(scene, amplitudes=scene.amplitudes.abs())
    strength = (samples.double().square().mean() / scene.sample(size).square().mean()).sqrt().cpu()
    scene = replace(scene, amplitudes=scene.amplitudes * strength)
    return error_budget(model, scene, size, rotations, like=samples)


def _not_involutions(grid: Sequence[Float[Tensor, "dim dim"]]) -> list[Tensor]:
    """Three rotations of the grid, none by 180 degrees: those cannot distinguish even degrees."""
    chosen = [R for R in grid if not torch.equal(R @ R, torch.eye(len(R), dtype=R.dtype))]
    return chosen[:: max(1, len(chosen) // 3)][:3]


def _generating_rotations(model: nn.Module, spacing: Sequence[float] | None) -> list[Tensor]:
    """Rotations by 90 and 180 degrees about all axes that preserve the voxels; those by 90 generate all of the grid."""
    group = input_type(model).group
    kept = [R.tolist() for R in grid_rotations_preserving(group, spacing)]
    tried = [rotation_about(group, angle, axis) for axis in sweep_axes(group).values() for angle in (90, 180)]
    return [R for R in tried if R.tolist() in kept]


def _part_that_fits(model: nn.Module, x: Tensor, memory: int | None) -> Tensor:
    """The center of a case, as much as fits into memory: stitched windows would not be exactly equivariant."""
    classes, size = int(model.out_type.channels), x.shape[1:]  # type: ignore[union-attr, arg-type]
    kept = _LOGIT_COPIES * classes * x[0].nbytes
    sides = choose_window(WindowMemory(model), size, classes, memory, kept=kept)
    starts = [(n - side) // 2 for n, side in zip(size, sides, strict=True)]
    return x[(slice(None), *(slice(start, start + side) for start, side in zip(starts, sides, strict=True)))]


def _central_pieces(cases: Sequence[Scan], side: int) -> Tensor:
    """The centers of some cases, all of one square or cubic shape, zero-padded if smaller."""
    pieces = []
    for case in cases[:_LAYER_CASES]:
        missing = [side - n for n in case.x.shape[:0:-1]]  # the last axis first, as pad takes it
        pieces.append(F.pad(case.x, [margin for m in missing for margin in (m // 2, m - m // 2)]))
    return torch.stack(pieces)
