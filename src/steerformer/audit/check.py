"""All that ``steerformer check`` measures, as one value."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from steerformer.audit.angles import accuracy_by_angle
from steerformer.audit.layers import LayerError, layer_errors
from steerformer.audit.logits import LogitChange, logit_change
from steerformer.audit.rotations import input_type, random_rotations, turn
from steerformer.testing import blobs

TOLERANCE = 1e-3
"""Relative change of logits under the grid's own rotations that rounding in float32 can explain, with a margin."""
_LAYER_SAMPLES = 8


@dataclass(frozen=True)
class Check:
    """Figures of one model."""

    samples: int
    grid: LogitChange
    """Logits under the grid's own rotations: exact, nothing interpolated."""
    arbitrary: LogitChange
    """Logits under random rotations: the samples are interpolated."""
    layers_grid: list[LayerError]
    """Errors of layers under a rotation of the grid, on samples."""
    layers_arbitrary: list[LayerError]
    """Errors of layers under random rotations, on smooth scenes that are turned as formulas."""
    angles: list[float]
    accuracy: dict[str, list[float]]
    """Accuracy at each angle, by axis."""

    @property
    def is_equivariant(self) -> bool:
        """Whether logits stay under the grid's own rotations."""
        return self.grid.worst <= TOLERANCE

    def as_json(self) -> dict[str, Any]:
        """For ``check.json``."""
        return {**asdict(self), "is_equivariant": self.is_equivariant, "tolerance": TOLERANCE}


def check_model(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    labels: Int[Tensor, "batch"],
    *,
    angles: Sequence[float | int] = tuple(range(0, 361, 15)),
    rotations: int = 8,
    mode: str = "bilinear",
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> Check:
    """Turn samples and scenes, and see what the model makes of them; ``progress`` is called once for each angle."""
    group = input_type(model).group
    grid = list(group.grid_rotations()[1:])
    some = random_rotations(group, rotations, seed=seed)
    few = x[:_LAYER_SAMPLES]
    return Check(
        samples=len(x),
        grid=logit_change(model, x, grid),
        arbitrary=logit_change(model, x, some, mode=mode),
        layers_grid=layer_errors(model, few, [(R, turn(model, few, R)) for R in _turns(grid)]),
        layers_arbitrary=scene_errors(model, x, some[:3], seed=seed),
        angles=[float(angle) for angle in angles],
        accuracy=accuracy_by_angle(model, x, labels, angles, mode=mode, progress=progress),
    )


def _turns(grid: Sequence[Float[Tensor, "dim dim"]]) -> list[Tensor]:
    """Three rotations of the grid, none of them half a turn: those cannot tell even degrees apart."""
    turns = [R for R in grid if not torch.equal(R @ R, torch.eye(len(R), dtype=R.dtype))]
    return turns[:: max(1, len(turns) // 3)][:3]


def scene_errors(
    model: nn.Module,
    samples: Float[Tensor, "batch channels *space"],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    seed: int = 0,
) -> list[LayerError]:
    """Errors of layers on smooth analytic scenes: no input is interpolated.

    A trained model expects what it was trained on, so scenes are as large, as strong and as positive as ``samples``.
    """
    size = tuple(samples.shape[2:])
    scene = blobs(input_type(model), batch=_LAYER_SAMPLES, sigma=2.0, extent=min(size) / 8, seed=seed)
    if samples.min() >= 0:
        scene = replace(scene, amplitudes=scene.amplitudes.abs())
    strength = (samples.double().square().mean() / scene.sample(size).square().mean()).sqrt().cpu()
    scene = replace(scene, amplitudes=scene.amplitudes * strength)
    turned = [(R, scene.rotate(R).sample(size).to(samples)) for R in rotations]
    return layer_errors(model, scene.sample(size).to(samples), turned)
