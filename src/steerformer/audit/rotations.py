"""Which rotations to try: random ones, equally spaced ones, and sweeps about fixed axes."""

import math

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import Group

_UP = (0.0, 0.0, 1.0)


def random_rotations(group: Group, count: int, *, seed: int = 0) -> list[Tensor]:
    """``count`` rotations drawn uniformly, always the same ones for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return [group.random_rotation(generator) for _ in range(count)]


def equally_spaced(group: Group, count: int) -> list[Tensor]:
    """``count`` turns of 360/count degrees, the identity first; in space about the grid's last axis,
    which is the vertical in the paper and on grids that are not tilted."""
    axis = None if group.dim == 2 else _UP
    return [group.rotation(2 * math.pi * i / count, axis) for i in range(count)]


def sweep_axes(group: Group) -> dict[str, tuple[float, ...] | None]:
    """Axes about which accuracy is measured, with their names: all axes of the grid; the plane has none."""
    if group.dim == 2:
        return {"plane": None}
    return {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": _UP}


def about(group: Group, degrees: float | int, axis: tuple[float, ...] | None) -> Tensor:
    """Rotation by an angle in degrees; quarter turns come out exact, so that nothing is interpolated."""
    R = group.rotation(math.radians(degrees), axis)
    return R.round() if group.is_grid_rotation(R) else R


def input_type(model: nn.Module) -> FieldType:
    """The field type of what a model takes."""
    in_type = getattr(model, "in_type", None)
    if not isinstance(in_type, FieldType):
        raise TypeError(f"{type(model).__name__} does not tell its in_type, which says how its input turns.")
    return in_type


def turn(model: nn.Module, x: Tensor, R: Tensor, *, mode: str = "bilinear") -> Tensor:
    """``x`` turned as the model's ``in_type`` says; the identity leaves it as it is."""
    in_type = input_type(model)
    is_identity = torch.equal(R, torch.eye(len(R), dtype=R.dtype))
    return x if is_identity else in_type.rotate(x, R, mode=mode)
