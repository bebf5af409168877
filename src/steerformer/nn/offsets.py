"""Offsets between the voxels of two grids with one center: which entry of a table belongs to a query and a key."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steerformer.nn.exported import is_exported

_MOST_STEPS = 6  # the table grows with the steps, to the power of the number of axes
_SAME_RATIO = 1e-4  # relative difference of two ratios of voxel spacings
_ROUNDING = 1e-9  # relative to the radius: a key at exactly the radius is within it


class OffsetAxis(NamedTuple):
    """Offsets along one axis: entry ``t = a (n - 1 - i) + b j`` belongs to query ``i`` of ``n`` and key ``j`` of ``m``.

    Entry ``t`` lies ``c / 2 - t`` entries from offset 0, with the last entry ``c = a (n - 1) + b (m - 1)``: the grids
    share their center, also where one has an even and the other an odd number of voxels.
    """

    queries: int
    """Voxels ``n`` of the queries."""
    keys: int
    """Voxels ``m`` of the keys."""
    query_step: int = 1
    """Entries ``a`` from one query to the next."""
    key_step: int = 1
    """Entries ``b`` from one key to the next."""
    reach: int = -1
    """Largest offset of interest, in halves of an entry; -1 for all."""

    @property
    def last(self) -> int:
        """The last entry, ``c``."""
        return self.query_step * (self.queries - 1) + self.key_step * (self.keys - 1)

    @property
    def start(self) -> int:
        """First entry of the table: with a reach it has one entry beyond it, which stands for all others there."""
        return 0 if self.reach < 0 else max(0, self._reached[0] - 1)

    @property
    def length(self) -> int:
        """Number of entries of the table."""
        stop = self.last if self.reach < 0 else min(self.last, self._reached[1] + 1)
        return stop - self.start + 1

    @property
    def _reached(self) -> tuple[int, int]:
        """First and last entry within reach."""
        return -((self.reach - self.last) // 2), (self.last + self.reach) // 2

    def keys_of(self, queries: range) -> range:
        """Keys within reach of any of these queries."""
        if self.reach < 0:
            return range(self.keys)
        first, last = (self.query_step * (self.queries - 1 - i) for i in (queries.start, queries.stop - 1))
        start = max(0, -((first - self._reached[0]) // self.key_step))
        return range(start, max(start, min(self.keys, (self._reached[1] - last) // self.key_step + 1)))

    def part(self, queries: range, keys: range) -> tuple["OffsetAxis", int]:
        """The axis of some queries and keys without a limit, and its first entry."""
        first = self.query_step * (self.queries - queries.stop) + self.key_step * keys.start
        return OffsetAxis(len(queries), len(keys), self.query_step, self.key_step), first


Lattice = tuple[OffsetAxis, ...]
"""Offsets along all axes."""


def lattice_within(space: Sequence[int]) -> Lattice:
    """Offsets of a grid with itself."""
    return tuple(OffsetAxis(n, n) for n in space)


def to_integers(lattice: Lattice) -> list[int]:
    """A lattice as a custom operator takes it."""
    return [number for axis in lattice for number in axis]


def from_integers(numbers: Sequence[int]) -> Lattice:
    """The inverse of :func:`to_integers`."""
    count = len(OffsetAxis._fields)
    return tuple(OffsetAxis(*numbers[start : start + count]) for start in range(0, len(numbers), count))


def offset_points(lattice: Lattice, units: Sequence[float]) -> Float[Tensor, "*offsets dim"]:
    """Float64 offsets of all entries of a table, where entries are ``units`` apart."""
    axes = [
        0.5 * (axis.last - 2 * axis.start - 2 * torch.arange(axis.length, dtype=torch.float64)) * unit
        for axis, unit in zip(lattice, units, strict=True)
    ]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def pair_entries(lattice: Lattice, device: torch.device) -> Int[Tensor, "query key"]:
    """Entry of the table, flattened, for every query and key."""
    index = torch.zeros(1, 1, dtype=torch.long, device=device)
    for axis in lattice:
        i, j = (torch.arange(n, device=device) for n in (axis.queries, axis.keys))
        entry = axis.query_step * (axis.queries - 1 - i[:, None]) + axis.key_step * j
        if axis.reach >= 0:
            entry = (entry - axis.start).clamp(0, axis.length - 1)
        grown = index[:, None, :, None] * axis.length + entry[None, :, None, :]
        index = grown.flatten(2).flatten(0, 1)
    return index


def entries_of(table: Tensor, lattice: Lattice, part: Lattice, first: Sequence[int]) -> Tensor:
    """The table of a part of the lattice, whose entries begin at ``first``."""
    for dim, (axis, inner, begin) in enumerate(zip(lattice, part, first, strict=True)):
        if (begin - axis.start, inner.length) != (0, axis.length):
            entries = torch.arange(begin, begin + inner.length, device=table.device) - axis.start
            table = table.index_select(dim, entries.clamp_(0, axis.length - 1))
    return table


class Spacings:
    """Voxel spacings of two grids as multiples of common units, and a radius in the same units of length.

    Args:
        queries: spacing of the queries.
        keys: spacing of the keys.
        radius: largest distance of a query and a key.
    """

    def __init__(self, queries: Sequence[float], keys: Sequence[float], radius: float | None = None) -> None:
        self.steps = [_common_steps(*both) for both in zip(queries, keys, strict=True)]
        self.units = tuple(step / steps[0] for step, steps in zip(queries, self.steps, strict=True))
        self.radius = radius
        self.largest_distance = math.inf if radius is None else radius * (1 + _ROUNDING)
        """The radius, and a little more for rounding errors."""
        self._reach = [-1] * len(self.units)
        if radius is not None:
            self._reach = [math.floor(min(2 * self.largest_distance / unit, 1e9)) for unit in self.units]

    def lattice(self, queries: Sequence[int], keys: Sequence[int]) -> Lattice:
        """Offsets of two grids of these sizes; all of them where torch.export records, whose sizes may be symbols."""
        reaches = [-1] * len(self.units) if is_exported() else self._reach
        return tuple(
            OffsetAxis(n, m, *steps, reach)
            for n, m, steps, reach in zip(queries, keys, self.steps, reaches, strict=True)
        )


def _common_steps(query: float, key: float) -> tuple[int, int]:
    """Both spacings as multiples of one length."""
    ratio = Fraction(query / key).limit_denominator(_MOST_STEPS)
    if ratio.numerator > _MOST_STEPS or not math.isclose(ratio * key, query, rel_tol=_SAME_RATIO):
        raise ValueError(
            f"spacing and context_spacing must have a ratio of whole numbers up to {_MOST_STEPS} along each axis, such "
            f"as 2:1 or 3:2, because positions are taken from a table of offsets; got {query:g}:{key:g}. Resample the "
            f"context, or leave positions out with positional=False."
        )
    return ratio.numerator, ratio.denominator


def pieces(total: int, size: int) -> Iterator[range]:
    """Consecutive ranges of at most ``size`` numbers."""
    return (range(start, min(start + size, total)) for start in range(0, total, size))
