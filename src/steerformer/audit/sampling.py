"""At which points maps are compared, and their values there."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import voxel_coordinates

_MOST_POINTS = 500
_INTERIOR = 0.75


@cache
def compared_points(grid: tuple[int, ...], *, is_exact: bool) -> tuple[Float[Tensor, "point dim"], str]:
    """Voxels at which a map and the map of a turned input are compared, centered coordinates, and a word for them.

    A rotation of the grid takes voxels onto voxels: all of them (of many, 500 drawn at random). Any other one leaves
    the center in place, on odd grids a voxel. On even grids these are the voxels of a ball around the center, away from
    the border, and what lies between voxels is interpolated.
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
