"""Resampling axis by axis: products with banded matrices, which on CPUs are faster than torch's interpolation."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.nn.metadata import with_metadata, without_metadata
from steerformer.nn.ops import is_autocast, is_traced

_TILE = 32  # rows of a product: more rows have more zeros, fewer are slower


class AxisMap(NamedTuple):
    """A banded matrix along an axis: entry ``(i, j)`` is 0 unless ``j`` is within ``reach`` of ``start + step i``."""

    matrix: Float[Tensor, "new old"]
    start: float
    step: float
    reach: float

    @property
    def transposed(self) -> "AxisMap":
        return AxisMap(self.matrix.mT, -self.start / self.step, 1 / self.step, self.reach / self.step)


def has_fast_products(x: Tensor) -> bool:
    """Whether :func:`map_axes` is the fastest way to resample ``x``."""
    exact = x.element_size() >= 4 and not is_autocast(x)
    return exact and x.device.type == "cpu" and not is_traced(x) and x.numel() > 0


def map_axes(
    x: Float[Tensor, "batch channels *space"],
    maps: Sequence[AxisMap | None],
    *,
    values: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "batch channels *new"]:
    """Apply one matrix to each spatial axis; ``None`` keeps the axis as it is.

    ``values`` is a function with the same result that is faster, but whose gradient is not.
    """
    maps_of_axes = [(axis, each) for axis, each in enumerate(maps, start=2) if each is not None]
    if not maps_of_axes:
        return x
    grows = sum(len(each.matrix) - each.matrix.shape[1] for _, each in maps_of_axes) > 0
    # products along the first axis are the fastest, so they take the largest field
    out: Tensor = _MapAxes.apply(without_metadata(x), maps_of_axes[::-1] if grows else maps_of_axes, values)
    return with_metadata(out, x)


class _MapAxes(torch.autograd.Function):
    """The maps one after the other; the gradient is the same with transposed matrices in reverse order."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, maps: Sequence[tuple[int, AxisMap]], values: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        ctx.maps = maps
        if values is not None:
            return values(x)
        for axis, each in maps:
            x = _map_axis(x.contiguous(), axis, each)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        out: Tensor = _MapAxes.apply(grad, [(axis, each.transposed) for axis, each in reversed(ctx.maps)], None)
        return out, None, None


def _map_axis(x: Tensor, axis: int, of_axis: AxisMap) -> Tensor:
    """Product with a banded matrix, in tiles of rows that leave out most of the zeros."""
    new, old = of_axis.matrix.shape
    out = x.new_empty(*x.shape[:axis], new, *x.shape[axis + 1 :])
    if axis == x.ndim - 1:
        rows_before, rows_after = x.view(-1, old), out.view(-1, new)
        for rows, columns in _tiles(of_axis):
            torch.mm(rows_before[:, columns], of_axis.matrix[rows, columns].mT, out=rows_after[:, rows])
        return out
    before, after = (field.flatten(0, axis - 1).flatten(2) for field in (x, out))
    for rows, columns in _tiles(of_axis):
        tile = of_axis.matrix[rows, columns].expand(len(before), -1, -1)
        if tile.shape[1] == new:
            torch.bmm(tile, before[:, columns], out=after)
        else:  # bmm is slow where its result is not contiguous
            after[:, rows] = torch.bmm(tile, before[:, columns])
    return out


def _tiles(of_axis: AxisMap) -> list[tuple[slice, slice]]:
    """Rows of the matrix, and the columns where they are not zero."""
    new, old = of_axis.matrix.shape
    size = -(-new // max(round(new / _TILE), 1))
    tiles = []
    for first in range(0, new, size):
        last = min(first + size, new) - 1
        low = math.floor(of_axis.start + of_axis.step * first - of_axis.reach)
        high = math.ceil(of_axis.start + of_axis.step * last + of_axis.reach)
        tiles.append((slice(first, last + 1), slice(max(low, 0), min(high + 1, old))))
    return tiles


def gaussian_windows(x: Tensor, axis: int, count: int, stride: int, deviation: float) -> AxisMap:
    """Gaussian means at ``count`` samples ``stride`` voxels apart, centered on one axis, with zeros outside."""
    size = x.shape[axis]
    half = (size - 1 - stride * (count - 1)) % 2  # whether the first sample lies between two voxels
    first = (size - 1) / 2 - stride * (count - 1) / 2
    (reach, whole), (reach_between, whole_between) = (_reach_and_sum(deviation, shift) for shift in (0.0, 0.5))
    reach, whole = reach + half * (reach_between - reach), whole + half * (whole_between - whole)
    samples = first + stride * torch.arange(count, dtype=torch.float64, device=x.device)[:, None]
    offsets = torch.arange(size, dtype=torch.float64, device=x.device) - samples
    taps = torch.where(offsets.abs() <= reach, _bell(offsets, deviation), 0)
    return AxisMap((taps / whole).to(x.dtype), start=first, step=stride, reach=reach)


def _reach_and_sum(deviation: float, shift: float) -> tuple[float, float]:
    """Distance from a sample, ``shift`` off the voxels, to its last voxel, and the sum of the bell at its voxels."""
    reach = math.ceil(3 * deviation - shift) + shift
    count = round(2 * reach) + 1
    return reach, sum(math.exp(-((i - reach) ** 2) / (2 * deviation**2)) for i in range(count))


def _bell(offsets: Tensor, deviation: float) -> Tensor:
    return torch.exp(-(offsets**2) / (2 * deviation**2))
