"""Angle sweeps: accuracy or Dice against the rotation angle of the input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from steerformer.audit.rotations import input_type, rotate_input, rotation_about, sweep_axes
from steerformer.data.rotation import rotate_scan
from steerformer.fields import sample_at, voxel_coordinates
from steerformer.infer import WindowMemory, predict_logits
from steerformer.io.scans import Scan
from steerformer.metrics.overlap import class_structures, overlaps


def accuracy_by_angle(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    labels: Int[Tensor, "batch"],
    angles: Sequence[float | int],
    *,
    mode: str = "bilinear",
    batch_size: int = 256,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Accuracy at each angle (in degrees), for each axis of :func:`~steerformer.audit.sweep_axes`."""
    group = input_type(model).group
    found: dict[str, list[float]] = {}
    for name, axis in sweep_axes(group).items():
        found[name] = []
        for angle in angles:
            R = rotation_about(group, angle, axis)
            correct = 0
            with torch.no_grad():
                for inputs, targets in zip(x.split(batch_size), labels.split(batch_size), strict=True):
                    correct += (model(rotate_input(model, inputs, R, mode=mode)).argmax(1) == targets).sum().item()
            found[name].append(correct / len(x))
            progress()
    return found


@dataclass(frozen=True)
class SweepScores:
    """Mean Dice over cases at one rotation, each the mean over its classes but the background."""

    agreement: float
    """Dice with the prediction for the upright case."""
    dice: float
    """Dice with the true labels."""
    ceiling: float
    """Dice with itself of the upright prediction rotated there and back: the cost of interpolation alone."""


@dataclass(frozen=True)
class DiceSweep:
    """Dice of segmentations under rotations."""

    upright: float
    """Mean Dice of the upright cases."""
    angles: list[float]
    axes: dict[str, list[SweepScores]]
    """At each angle, by axis."""
    random: list[SweepScores]
    """At random rotations."""

    def away_from_the_grid(self) -> list[SweepScores]:
        """All scores but those at multiples of 90 degrees, which need no interpolation."""
        chosen = [i for i, angle in enumerate(self.angles) if angle % 90]
        return [scores[i] for scores in self.axes.values() for i in chosen] + self.random


def dice_sweep(
    model: nn.Module,
    cases: Sequence[Scan],
    *,
    angles: Sequence[float | int],
    rotations: Sequence[Float[Tensor, "dim dim"]] = (),
    memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> DiceSweep:
    """Rotate each case, on a grid that grows so that nothing is cut off, predict, and rotate probabilities back."""
    group = input_type(model).group
    window_memory = WindowMemory(model)

    def probabilities(x: Tensor) -> Tensor:
        return predict_logits(model, x, memory=memory, window_memory=window_memory).softmax(0)

    upright = [probabilities(case.x) for case in cases]

    def scores(R: Tensor) -> SweepScores:
        found = [_scores(case, before, R, probabilities) for case, before in zip(cases, upright, strict=True)]
        progress()
        return SweepScores(*(fmean(values) for values in zip(*found, strict=True)))

    return DiceSweep(
        fmean(_dice(before.argmax(0), _labels(case), len(before)) for case, before in zip(cases, upright, strict=True)),
        [float(angle) for angle in angles],
        {
            name: [scores(rotation_about(group, angle, axis)) for angle in angles]
            for name, axis in sweep_axes(group).items()
        },
        [scores(R) for R in rotations],
    )


def _scores(
    case: Scan, upright: Tensor, R: Tensor, probabilities: Callable[[Tensor], Tensor]
) -> tuple[float, float, float]:
    """Agreement, Dice and ceiling of one case."""
    expected = upright.argmax(0)
    rotated = probabilities(rotate_scan(case.x, R, case.spacing))
    found = rotate_back(rotated, R, case).argmax(0)
    ceiling = rotate_back(rotate_scan(upright, R, case.spacing), R, case).argmax(0)
    count = len(upright)
    return _dice(found, expected, count), _dice(found, _labels(case), count), _dice(ceiling, expected, count)


def rotate_back(rotated: Tensor, R: Tensor, case: Scan) -> Tensor:
    """A map of the rotated case at the voxels of the case: at ``R x`` for each ``x``."""
    steps = torch.tensor(case.spacing, dtype=torch.float64)
    places = voxel_coordinates(case.shape, case.spacing) @ R.double().mT / steps
    return sample_at(rotated[None], places.to(rotated)[None])[0]


def _labels(case: Scan) -> Tensor:
    assert case.labels is not None
    return case.labels


def _dice(found: Tensor, expected: Tensor, classes: int) -> float:
    """Mean over the classes in one or both; 1 if there are none."""
    structures = class_structures([str(label) for label in range(classes)])
    values = [overlap.dice for overlap in overlaps(found, expected, structures).values() if overlap.dice is not None]
    return fmean(values) if values else 1.0
