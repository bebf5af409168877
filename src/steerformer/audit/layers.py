"""Equivariance error of every layer inside a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.audit.rotations import input_type
from steerformer.fields import FieldType, voxel_coordinates

Kept = TypeVar("Kept")
_MOST_POINTS = 500
_INTERIOR = 0.75


@dataclass(frozen=True)
class LayerError:
    r"""Relative error $\|f(Rx) - R f(x)\| / \|f(x)\|$ of a layer's output, including all layers before it."""

    name: str
    kind: str
    field_type: str
    grid: tuple[int, ...]
    compared: str
    """Where: ``all voxels``, ``center`` (nothing interpolated), ``interior`` (by splines), or ``no space``."""
    total: float
    per_degree: dict[int, float]


def layer_errors(
    model: nn.Module,
    upright: Float[Tensor, "batch channels *space"],
    rotated: Sequence[tuple[Float[Tensor, "dim dim"], Float[Tensor, "batch channels *space"]]],
) -> list[LayerError]:
    """Errors of all modules with an ``out_type``, in execution order, over all rotations together.

    Args:
        model: in eval mode.
        upright: the input.
        rotated: rotations, each with the rotated input: exactly, by rotations of the grid, or sampled again from an
            analytic scene (:class:`steerformer.testing.Scene`). Do not mix both kinds.
    """
    group = input_type(model).group
    is_exact = all(group.is_grid_rotation(R) for R, _ in rotated)
    expected = _outputs(model, upright, partial(_rotated_samples, rotations=[R for R, _ in rotated], is_exact=is_exact))
    found = [_outputs(model, x, partial(_samples, is_exact=is_exact)) for _, x in rotated]
    modules = dict(model.named_modules())
    errors = []
    for name, (grid, samples) in expected.items():
        if samples[0].numel():  # a grid of two voxels has no interior
            pairs = [(value, other[name]) for value, other in zip(samples, found, strict=True)]
            word = compared_points(grid, is_exact=is_exact)[1] if grid else "no space"
            errors.append(_layer_error(name, modules[name], grid, word, pairs))
    return errors


def output_type(module: nn.Module) -> FieldType | None:
    """The field type of a module's output, if it declares one."""
    out_type = getattr(module, "out_type", None)
    return out_type if isinstance(out_type, FieldType) else None


def _outputs(model: nn.Module, x: Tensor, keep: Callable[[FieldType, Tensor], Kept]) -> dict[str, Kept]:
    """Apply ``keep`` to the output of each module during the forward pass: whole maps would not fit into memory."""
    kept: dict[str, Kept] = {}

    def look(module: nn.Module, arguments: Any, output: Any, *, name: str) -> None:
        out_type = output_type(module)
        if out_type and isinstance(output, Tensor) and output.ndim in (2, 2 + out_type.group.dim):
            kept.pop(name, None)  # a module that runs twice is measured the last time
            kept[name] = keep(out_type, output)

    handles = [m.register_forward_hook(partial(look, name=name)) for name, m in model.named_modules() if output_type(m)]
    run_with_hooks(model, x, handles)
    return kept


def _samples(out_type: FieldType, y: Tensor, *, is_exact: bool) -> Tensor:
    """Values at the compared points, ``(batch * point, channels)``."""
    if y.ndim == 2:
        return y
    points, _ = compared_points(tuple(y.shape[2:]), is_exact=is_exact)
    return values_at(y, points).mT.flatten(0, 1)


def _rotated_samples(
    out_type: FieldType, y: Tensor, *, rotations: Sequence[Tensor], is_exact: bool
) -> tuple[tuple[int, ...], list[Tensor]]:
    """The grid, and for each rotation the expected values of the rotated map, ``rho(R) f(R^-1 x)``."""
    if y.ndim == 2:
        return (), [out_type.rotate(y, R) for R in rotations]
    grid = tuple(y.shape[2:])
    points, _ = compared_points(grid, is_exact=is_exact)
    return grid, [out_type.rotate(values_at(y, points @ R).mT.flatten(0, 1), R) for R in rotations]


def _layer_error(
    name: str, module: nn.Module, grid: tuple[int, ...], compared: str, pairs: Sequence[tuple[Tensor, Tensor]]
) -> LayerError:
    out_type = output_type(module)
    assert out_type is not None
    expected, found = (torch.cat(values).double() for values in zip(*pairs, strict=True))
    pieces = zip(out_type.degrees, out_type.split(expected), out_type.split(found - expected), strict=True)
    per_degree = {degree: _ratio(difference, value) for degree, value, difference in pieces}
    total = _ratio(found - expected, expected)
    return LayerError(name or "logits", type(module).__name__, str(out_type), grid, compared, total, per_degree)


def _ratio(difference: Tensor, value: Tensor) -> float:
    size, error = value.norm().item(), difference.norm().item()
    return error / size if size else float(error > 0)


@cache
def compared_points(grid: tuple[int, ...], *, is_exact: bool) -> tuple[Float[Tensor, "point dim"], str]:
    """Voxels at which a map and the map of a rotated input are compared (centered coordinates), and their description.

    Rotations of the grid map voxels to voxels: all of them (at most 500, drawn at random). Any other rotation fixes the
    center, a voxel of an odd grid. On even grids, voxels in a ball around the center are compared, by interpolation.
    """
    voxels = voxel_coordinates(grid).flatten(0, -2)
    if is_exact:
        chosen, word = voxels, "all voxels"
    elif all(n % 2 for n in grid):
        chosen, word = torch.zeros(1, len(grid), dtype=torch.float64), "center"
    else:
        chosen, word = voxels[voxels.norm(dim=1) <= _INTERIOR * (min(grid) - 1) / 2], "interior"
    some = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))[:_MOST_POINTS]
    return chosen[some], word


def values_at(
    y: Float[Tensor, "batch channels *space"], points: Float[Tensor, "point dim"]
) -> Float[Tensor, "batch channels point"]:
    """Values of a map at centered coordinates, by quintic splines, which are exact at voxels."""
    weights = torch.ones(len(points), 1, dtype=torch.float64)
    for n, coordinates in zip(y.shape[2:], points.T, strict=True):
        along = torch.from_numpy(_spline_weights(n, (coordinates + (n - 1) / 2).numpy()))
        weights = (weights[:, :, None] * along[:, None]).flatten(1)  # point, voxel
    return y.flatten(2) @ weights.to(y).mT


def _spline_weights(n: int, places: np.ndarray) -> np.ndarray:
    """Weights ``(place, voxel)`` of the spline through the values of ``n`` voxels in a row."""
    from scipy.interpolate import make_interp_spline

    order = min(5, n - 1 - n % 2)  # odd orders have their knots at voxels
    if order < 1:
        return np.ones((len(places), 1))
    spline = make_interp_spline(np.arange(n), np.eye(n), k=order)
    return np.asarray(spline(np.clip(places, 0, n - 1)))
