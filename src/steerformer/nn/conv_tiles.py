"""Tiles of a grid for the spectral convolution: their sizes, their transforms, and cutting and joining them."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_SIZES = (6, 8, 10, 12, 16, 20, 24, 32)
_TRAFFIC = 450
"""An entry of a spectrum costs as much time as this many operations of a transform; fitted to timings."""


class Axis(NamedTuple):
    """One spatial axis of a convolution: voxels of the grid, taps of the kernel, stride, padding and dilation."""

    voxels: int
    taps: int
    stride: int
    padding: int
    dilation: int
    kept: int | None = None
    """Number of outputs, if it is not that of the whole grid."""

    @property
    def outputs(self) -> int:
        if self.kept is not None:
            return self.kept
        return (self.voxels + 2 * self.padding - self.dilation * (self.taps - 1) - 1) // self.stride + 1


class Lengths(NamedTuple):
    """An axis cut into tiles: number of tiles, outputs and voxels of each, and period of their spectra."""

    axis: Axis
    tiles: int
    outputs: int
    window: int
    period: int
    is_half: bool = False
    """Whether the field is real, so that one half of the frequencies follows from the other half."""

    @property
    def frequencies(self) -> int:
        return self.period // 2 + 1 if self.is_half else self.period


class TiledAxis(NamedTuple):
    """An axis cut into tiles, and the transforms of a tile."""

    lengths: Lengths
    step: int
    """Voxels from one tile to the next."""
    margin: tuple[int, int]
    """Zeros before and after the grid that complete the first and the last tile."""
    analysis: Tensor
    """Spectrum of the voxels of a tile, ``(frequency, voxel)``."""
    response: Tensor
    """Spectrum of the kernel, ``(frequency, tap)``."""
    synthesis: Tensor
    """Outputs of a tile from their spectrum, ``(output, frequency)``."""


Plan = tuple[TiledAxis, ...]


def axes_of(
    space: Sequence[int], taps: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: int
) -> tuple[Axis, ...]:
    """Axes of a convolution on a grid, which negative padding crops first."""
    each = zip(space, taps, stride, padding, strict=True)
    return tuple(Axis(n + 2 * min(p, 0), size, step, max(p, 0), dilation) for n, size, step, p in each)


def make_plan(lengths: Sequence[Lengths], dtype: torch.dtype, device: torch.device) -> Plan:
    """Transforms for a field of this real dtype."""
    return tuple(_tiled(each, dtype, device) for each in lengths)


@lru_cache(maxsize=4096)
def cheapest_tiles(
    batch: int, into: int, out: int, axes: tuple[Axis, ...], *, is_real: bool = False
) -> tuple[int, tuple[Lengths, ...]]:
    """The tiles with the least cost, the whole grid or tiles of a few sizes, for so many complex or real channels.

    The cost is that of transforms, products and memory traffic, as a number of operations of the transforms.
    """
    candidates = [tuple(_lengths(axis, size) for axis in axes) for size in (None, *_SIZES)]
    if is_real:
        candidates = [(*others, last._replace(is_half=True)) for *others, last in candidates]
    return min(((_cost(batch, into, out, lengths), lengths) for lengths in candidates), key=lambda found: found[0])


def _lengths(axis: Axis, size: int | None) -> Lengths:
    tiles = 1 if size is None else max(round(axis.outputs / size), 1)
    outputs = -(-axis.outputs // tiles)
    tiles = -(-axis.outputs // outputs)
    span = axis.stride * (outputs - 1) + axis.dilation * (axis.taps - 1) + 1
    if tiles > 1:
        return Lengths(axis, tiles, outputs, span, span)
    # spectra are periodic: the zeros beyond one end of the grid serve as those beyond the other end
    return Lengths(axis, 1, outputs, axis.voxels, max(span - axis.padding, axis.voxels + axis.padding))


def _cost(batch: int, into: int, out: int, axes: Sequence[Lengths]) -> int:
    tiles = batch * math.prod(each.tiles for each in axes)
    frequencies = [each.frequencies for each in axes]
    count = math.prod(frequencies)
    transforms = (
        tiles * into * _transform_cost([each.window for each in axes], frequencies)
        + tiles * out * _transform_cost([each.outputs for each in axes], frequencies)
        + into * out * _transform_cost([each.axis.taps for each in axes], frequencies)
    )
    products = 16 * count * tiles * into * out
    return transforms + products + _TRAFFIC * count * (tiles * (into + out) + 2 * into * out)


def _transform_cost(points: Sequence[int], frequencies: Sequence[int]) -> int:
    return sum(8 * math.prod(points[: i + 1]) * math.prod(frequencies[i:]) for i in range(len(points)))


@lru_cache(maxsize=256)
def _tiled(lengths: Lengths, dtype: torch.dtype, device: torch.device) -> TiledAxis:
    axis, tiles, outputs, window, period, is_half = lengths
    step = axis.stride * outputs
    margin = (axis.padding, step * (tiles - 1) + window - axis.voxels - axis.padding) if tiles > 1 else (0, 0)
    first = 0 if tiles > 1 else -axis.padding
    with torch.inference_mode(False), torch.device("cpu"):  # kept for later calls, which may need gradients
        frequencies = torch.arange(lengths.frequencies, dtype=torch.float64)[:, None]
        angles = 2 * math.pi / period * frequencies
        analysis = _waves(-angles * torch.arange(window))
        response = _waves(angles * axis.dilation * torch.arange(axis.taps))
        synthesis = _waves(angles * (first + axis.stride * torch.arange(outputs))).mT / period
        if is_half:  # the real part of a sum over this half, whose other frequencies have the conjugate values
            synthesis = synthesis * torch.where((frequencies == 0) | (2 * frequencies == period), 1, 2).mT
        exact = analysis, response, synthesis
        return TiledAxis(lengths, step, margin, *(matrix.to(device, dtype.to_complex()) for matrix in exact))


def _waves(phases: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(phases), phases)


class Slab(NamedTuple):
    """A part of a batch: samples, a range of voxels and of outputs along the first spatial axis, and their tiles."""

    samples: slice
    voxels: slice
    outputs: slice
    plan: Plan


def slabs(plan: Plan, batch: int, channels: int, *, most: int) -> Iterator[Slab]:
    """Parts whose spectra have at most so many entries, or a single row of tiles of one sample if that has more."""
    first, *others = plan
    tiles, frequencies = first.lengths.tiles, math.prod(axis.lengths.frequencies for axis in plan)
    row = frequencies * channels * math.prod(axis.lengths.tiles for axis in others)
    samples = max(min(most // (row * tiles), batch), 1)
    rows = max(min(most // row, tiles), 1)
    for start in range(0, batch, samples):
        together = slice(start, min(start + samples, batch))
        for top in range(0, tiles, rows):
            voxels, outputs, axis = _rows_of_tiles(first, top, min(top + rows, tiles))
            yield Slab(together, voxels, outputs, (axis, *others))


def _rows_of_tiles(tiled: TiledAxis, start: int, stop: int) -> tuple[slice, slice, TiledAxis]:
    """Voxels and outputs of some tiles of an axis, and these tiles as an axis of its own."""
    axis = tiled.lengths.axis
    if stop - start == tiled.lengths.tiles:
        return slice(0, axis.voxels), slice(0, axis.outputs), tiled
    begin = start * tiled.step - axis.padding
    end = begin + (stop - start - 1) * tiled.step + tiled.lengths.window
    voxels = slice(max(begin, 0), min(end, axis.voxels))
    if voxels.stop <= voxels.start:  # all of these tiles lie in the padding
        voxels, begin, end = slice(0, 0), begin - end, 0
    outputs = slice(start * tiled.lengths.outputs, min(stop * tiled.lengths.outputs, axis.outputs))
    margin = (voxels.start - begin, end - voxels.stop)
    part = axis._replace(voxels=voxels.stop - voxels.start, kept=outputs.stop - outputs.start)
    lengths = tiled.lengths._replace(axis=part, tiles=stop - start)
    return voxels, outputs, tiled._replace(lengths=lengths, margin=margin)


def _is_whole(plan: Plan) -> bool:
    return all(axis.lengths.tiles == 1 and axis.lengths.window == axis.lengths.axis.voxels for axis in plan)


def cut(x: Tensor, plan: Plan) -> Tensor:
    """Overlapping windows of the input, ``(batch * tiles, channel, *window)``."""
    if _is_whole(plan):
        return x
    x = F.pad(x, [zeros for axis in reversed(plan) for zeros in axis.margin])
    for i, axis in enumerate(plan, start=2):
        x = x.unfold(i, axis.lengths.window, axis.step)  # appends the window as last axis
    return x.movedim(1, 1 + len(plan)).flatten(0, len(plan))


def join(y: Tensor, plan: Plan) -> Tensor:
    """Outputs of all tiles side by side, ``(batch, channel, *space)``."""
    if _is_whole(plan):
        return y
    dim = len(plan)
    y = y.unflatten(0, (-1, *(axis.lengths.tiles for axis in plan)))
    y = y.permute(0, 1 + dim, *(place for i in range(dim) for place in (1 + i, 2 + dim + i)))
    y = y.reshape(*y.shape[:2], *(axis.lengths.tiles * axis.lengths.outputs for axis in plan))
    for i, axis in enumerate(plan, start=2):
        y = y.narrow(i, 0, axis.lengths.axis.outputs)
    return y


def cut_outputs(y: Tensor, plan: Plan) -> Tensor:
    """Adjoint of :func:`join`."""
    if _is_whole(plan):
        return y
    dim = len(plan)
    extra = (axis.lengths.tiles * axis.lengths.outputs - axis.lengths.axis.outputs for axis in reversed(plan))
    y = F.pad(y, [zeros for count in extra for zeros in (0, count)])
    y = y.view(*y.shape[:2], *(n for axis in plan for n in (axis.lengths.tiles, axis.lengths.outputs)))
    y = y.permute(0, *(2 + 2 * i for i in range(dim)), 1, *(3 + 2 * i for i in range(dim)))
    return y.flatten(0, dim)


def overlap_add(x: Tensor, plan: Plan) -> Tensor:
    """Adjoint of :func:`cut`: sum the windows where they overlap."""
    if _is_whole(plan):
        return x
    dim = len(plan)
    x = x.unflatten(0, (-1, *(axis.lengths.tiles for axis in plan))).movedim(1 + dim, 1)
    for i, axis in enumerate(plan, start=2):  # axes: batch, channel, summed ones, tiles of the others, their windows
        x = x.movedim(2 + dim, i + 1)
        before, after = axis.margin
        total = x.new_zeros(*x.shape[:i], before + axis.lengths.axis.voxels + max(after, 0), *x.shape[i + 2 :])
        for tile in range(axis.lengths.tiles):
            total.narrow(i, tile * axis.step, axis.lengths.window).add_(x.select(i, tile))
        x = total.narrow(i, before, axis.lengths.axis.voxels)
    return x
