"""Does a segmentation turn with its scan? Turned, predicted, turned back, compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from steerformer.audit.rotations import about, input_type, sweep_axes
from steerformer.data.turn import sample, turn_whole
from steerformer.fields import voxel_coordinates
from steerformer.infer import Appetite, predict_logits
from steerformer.train.overlap import class_structures, overlaps


@dataclass(frozen=True, eq=False)
class Case:
    """An image or volume, its true labels, and the size of its voxels."""

    name: str
    x: Float[Tensor, "channels *space"]
    labels: Int[Tensor, "*space"]
    spacing: tuple[float, ...]


@dataclass(frozen=True)
class Scores:
    """Mean Dice over cases, each the mean over its classes but the background."""

    agreement: float
    """With the prediction for the case as it stands."""
    dice: float
    """With the true labels."""
    ceiling: float
    """What the prediction for the case as it stands would have if it were turned there and back: interpolation alone
    costs as much."""


@dataclass(frozen=True)
class Sweep:
    """What becomes of segmentations under rotations."""

    upright: float
    """Mean Dice of the cases as they stand."""
    angles: list[float]
    axes: dict[str, list[Scores]]
    """At each angle, by axis."""
    random: list[Scores]
    """At random rotations."""


def sweep(
    model: nn.Module,
    cases: Sequence[Case],
    *,
    angles: Sequence[float | int],
    rotations: Sequence[Float[Tensor, "dim dim"]] = (),
    memory: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Sweep:
    """Turn each case, on a grid that grows so that nothing is cut off, predict, and turn probabilities back."""
    group = input_type(model).group
    appetite = Appetite(model)

    def probabilities(x: Tensor) -> Tensor:
        return predict_logits(model, x, memory=memory, appetite=appetite).softmax(0)

    upright = [probabilities(case.x) for case in cases]

    def scores(R: Tensor) -> Scores:
        found = [_scores(case, there, R, probabilities) for case, there in zip(cases, upright, strict=True)]
        progress()
        return Scores(*(fmean(values) for values in zip(*found, strict=True)))

    return Sweep(
        fmean(_dice(there.argmax(0), case.labels, len(there)) for case, there in zip(cases, upright, strict=True)),
        [float(angle) for angle in angles],
        {name: [scores(about(group, angle, axis)) for angle in angles] for name, axis in sweep_axes(group).items()},
        [scores(R) for R in rotations],
    )


def _scores(
    case: Case, upright: Tensor, R: Tensor, probabilities: Callable[[Tensor], Tensor]
) -> tuple[float, float, float]:
    """Agreement, Dice and ceiling of one case."""
    expected = upright.argmax(0)
    turned = probabilities(turn_whole(case.x, R, case.spacing))
    found = _back(turned, R, case).argmax(0)
    ceiling = _back(turn_whole(upright, R, case.spacing), R, case).argmax(0)
    count = len(upright)
    return _dice(found, expected, count), _dice(found, case.labels, count), _dice(ceiling, expected, count)


def _back(turned: Tensor, R: Tensor, case: Case) -> Tensor:
    """What was found in the turned case, at the voxels of the case: at ``R x`` for each ``x``."""
    steps = torch.tensor(case.spacing, dtype=torch.float64)
    places = voxel_coordinates(case.labels.shape, case.spacing) @ R.double().mT / steps
    return sample(turned[None], places.to(turned)[None])[0]


def _dice(found: Tensor, expected: Tensor, classes: int) -> float:
    """Mean over the classes that are in one of both; 1 if there are none."""
    structures = class_structures([str(label) for label in range(classes)])
    values = [overlap.dice for overlap in overlaps(found, expected, structures).values() if overlap.dice is not None]
    return fmean(values) if values else 1.0
