"""Values of maps between voxels, by quintic splines through the values of all voxels."""

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from steerformer.fields import voxel_coordinates

_ORDER = 5
_MOST_CACHED = 20_000  # points whose weights are kept; each has up to 216


def rotated_values(
    y: Float[Tensor, "batch channels *fine"], R: Float[Tensor, "dim dim"], grid: tuple[int, ...], finer: int = 1
) -> Float[Tensor, "batch channels voxel"]:
    """Values at ``R^-1 x`` for all voxels ``x`` of a grid, of a map with ``finer`` samples from voxel to voxel."""
    points = finer * voxel_coordinates(grid).flatten(0, -2) @ R.double()  # row vectors: R^-1 x
    if len(points) > _MOST_CACHED:
        return torch.cat([values_at(y, some) for some in points.split(_MOST_CACHED)], dim=2)
    matrix = _cached_matrix(tuple(y.shape[2:]), tuple(R.double().flatten().tolist()), grid, finer)
    return _apply(matrix, y)


def values_at(
    y: Float[Tensor, "batch channels *space"], points: Float[Tensor, "point dim"]
) -> Float[Tensor, "batch channels point"]:
    """Values of a map at centered coordinates, in voxels; exact at voxels. Points outside the grid take its edge."""
    return _apply(_evaluation_matrix(tuple(y.shape[2:]), points), y)


@lru_cache(maxsize=16)  # all layers on one grid share it
def _cached_matrix(sizes: tuple[int, ...], R: tuple[float, ...], grid: tuple[int, ...], finer: int) -> Any:
    rotation = torch.tensor(R, dtype=torch.float64).view(len(grid), len(grid))
    return _evaluation_matrix(sizes, finer * voxel_coordinates(grid).flatten(0, -2) @ rotation)


def _evaluation_matrix(sizes: tuple[int, ...], points: Float[Tensor, "point dim"]) -> Any:
    """Sparse matrix ``(point, coefficient)`` from the coefficients of splines to their values."""
    from scipy.sparse import csr_matrix

    places, weights = _local_weights(points, sizes)
    rows = np.arange(len(points) + 1) * places.shape[1]
    return csr_matrix((weights.ravel(), places.ravel(), rows), shape=(len(points), math.prod(sizes)))


def _apply(matrix: Any, y: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels point"]:
    for axis, n in enumerate(y.shape[2:], start=2):
        solve = torch.from_numpy(_coefficients(n)).to(y)
        y = (y.movedim(axis, -1) @ solve.mT).movedim(-1, axis)
    columns = y.flatten(2).flatten(0, 1).mT.double().cpu().numpy()
    return torch.from_numpy(matrix @ columns).to(y).mT.unflatten(0, y.shape[:2])


def _local_weights(
    points: Float[Tensor, "point dim"], sizes: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each point, the places of the coefficients that reach it, in a flattened map, and their weights."""
    places, weights = np.zeros((len(points), 1), dtype=np.int64), np.ones((len(points), 1))
    for n, coordinates in zip(sizes, points.T.double().cpu().numpy(), strict=True):
        first, values = _basis_functions(n, np.clip(coordinates + (n - 1) / 2, 0, n - 1))
        along = first[:, None] + np.arange(values.shape[1])
        places = (places[:, :, None] * n + along[:, None]).reshape(len(points), -1)
        weights = (weights[:, :, None] * values[:, None]).reshape(len(points), -1)
    return places, weights


def _basis_functions(n: int, places: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of the first B-spline that reaches each place, and the values of all that do."""
    from scipy.interpolate import BSpline

    spline = _spline(n)
    if spline is None:
        return np.zeros(len(places), dtype=np.int64), np.ones((len(places), 1))
    design = BSpline.design_matrix(places, spline.t, spline.k)
    reach = spline.k + 1
    return design.indices.reshape(-1, reach)[:, 0].astype(np.int64), design.data.reshape(-1, reach)


@cache
def _coefficients(n: int) -> NDArray[np.float64]:
    """Matrix from the values of ``n`` voxels in a row to the coefficients of their spline."""
    spline = _spline(n)
    return np.eye(n) if spline is None else np.asarray(spline.c)


@cache
def _spline(n: int) -> Any:
    """The splines that are 1 at one of ``n`` voxels and 0 at the others; ``None`` for a single voxel."""
    from scipy.interpolate import make_interp_spline

    order = min(_ORDER, n - 1 - n % 2)  # odd orders have their knots at voxels
    return make_interp_spline(np.arange(n), np.eye(n), k=order) if order >= 1 else None
