"""Values of maps between voxels, by quintic splines through the values of all voxels."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

_ORDER = 5


def values_at(
    y: Float[Tensor, "batch channels *space"], points: Float[Tensor, "point dim"]
) -> Float[Tensor, "batch channels point"]:
    """Values of a map at centered coordinates, in voxels; exact at voxels. Points outside the grid take its edge."""
    from scipy.sparse import csr_matrix

    sizes = tuple(y.shape[2:])
    for axis, n in enumerate(sizes, start=2):
        matrix = torch.from_numpy(_coefficients(n)).to(y)
        y = (y.movedim(axis, -1) @ matrix.mT).movedim(-1, axis)
    places, weights = _local_weights(points, sizes)
    rows = np.arange(len(points) + 1) * places.shape[1]
    matrix = csr_matrix((weights.ravel(), places.ravel(), rows), shape=(len(points), y[0, 0].numel()))
    columns = y.flatten(2).flatten(0, 1).mT.double().cpu().numpy()
    found = torch.from_numpy(matrix @ columns).to(y)
    return found.mT.unflatten(0, y.shape[:2])


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
