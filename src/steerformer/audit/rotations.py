"""Rotations to try: random ones, and sweeps about the axes of the grid; rotating a model's input."""

import math

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import Group


def random_rotations(group: Group, count: int, *, seed: int = 0) -> list[Tensor]:
    """``count`` rotations drawn uniformly with a fixed seed."""
    generator = torch.Generator().manual_seed(seed)
    return [group.random_rotation(generator) for _ in range(count)]


def sweep_axes(group: Group) -> dict[str, tuple[float, ...] | None]:
    """Rotation axes of a sweep by name: all axes of the grid; the plane has none."""
    if group.dim == 2:
        return {"plane": None}
    return {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def rotation_about(group: Group, degrees: float | int, axis: tuple[float, ...] | None) -> Tensor:
    """Rotation by an angle in degrees; multiples of 90 degrees are exact, so that nothing is interpolated."""
    R = group.rotation(math.radians(degrees), axis)
    return R.round() if group.is_grid_rotation(R) else R


def input_type(model: nn.Module) -> FieldType:
    """The field type of a model's input."""
    in_type = getattr(model, "in_type", None)
    if not isinstance(in_type, FieldType):
        raise TypeError(f"{type(model).__name__} has no in_type, which defines how its input rotates.")
    return in_type


def rotate_input(model: nn.Module, x: Tensor, R: Tensor, *, mode: str = "bilinear") -> Tensor:
    """Rotate ``x`` as the model's ``in_type`` says; the identity returns it unchanged."""
    in_type = input_type(model)
    is_identity = torch.equal(R, torch.eye(len(R), dtype=R.dtype))
    return x if is_identity else in_type.rotate(x, R, mode=mode)
