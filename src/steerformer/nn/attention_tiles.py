"""Tiles of attention: some queries and heads against some keys, small enough for the CPU caches.

Tokens are the voxels of a grid, which its first axis cuts into slabs: the rows of an image, the planes of a volume. The
table's rows for one query and all keys depend on the place of the query within its slab, and on the slab only by where
they begin: they are a window of a strip of memory. A strip is copied once for all slabs, and matrix products read its
windows in place. Where keys are several entries of the table apart along the first axis, a strip has one part for each
remainder, so that windows are contiguous there, too.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.nn.offsets import Lattice

_MOST_SCORES = 1 << 22  # real numbers of a tile, and of the strips: more would not fit the CPU caches
_MOST_QUERIES = 256  # matrix products with fewer queries take longer, with more they take more memory
_MOST_HEADS = 8
_SAME_SETS = 1024  # rows that begin at multiples of 4 kB compete for few cache lines


class Sizes(NamedTuple):
    """Sizes of tiles."""

    query_slabs: int
    query_places: int
    """Tokens of a slab."""
    key_slabs: int
    heads: int


class Keys(NamedTuple):
    """A tile of keys: whole slabs."""

    slabs: slice
    tokens: slice
    row: int
    """Length of a row of scores in memory: a number for each key, and padding."""

    @property
    def number(self) -> int:
        return int(self.tokens.stop - self.tokens.start)


class Tiling:
    """Cuts queries and heads into blocks, and keys into tiles.

    Args:
        table: ``(*offsets, row)``, :meth:`PositionalEncoding.table_on`.
        lattice: offsets of queries and keys, without a reach.
        heads: number of heads of all samples.
        all_keys: whether a tile has all keys.
    """

    def __init__(self, table: Tensor, lattice: Lattice, heads: int, *, all_keys: bool = False) -> None:
        self.heads, self.depth = heads, table.shape[-1]
        self.sizes = _choose_sizes(lattice, self.depth, heads, all_keys=all_keys)
        self._key_places = math.prod(axis.keys for axis in lattice[1:])
        self.keys = [self._tile(slabs) for slabs in _pieces(lattice[0].keys, self.sizes.key_slabs)]
        margin = max(keys.row - keys.number for keys in self.keys)
        self.strips = _Strips(F.pad(table, (0, 1), value=1.0), lattice, self.sizes.query_places, margin=margin)

    def blocks(self) -> Iterator["Block"]:
        """All blocks of queries and heads; only the last one may be used."""
        slabs_of_queries, places_of_queries = self.strips.grid
        for places in _pieces(places_of_queries, self.sizes.query_places):
            self.strips.load(places)
            for slabs in _pieces(slabs_of_queries, self.sizes.query_slabs):
                for heads in _pieces(self.heads, self.sizes.heads):
                    yield Block(heads, slabs, places, self.strips)

    def new_buffer(self, like: Tensor, parts: int = 1) -> Tensor:
        """Memory for the scores of a tile."""
        queries = self.sizes.query_slabs * self.sizes.query_places
        return like.new_empty(parts * queries * self.sizes.heads * max(keys.row for keys in self.keys))

    def _tile(self, slabs: slice) -> Keys:
        tokens = slice(slabs.start * self._key_places, slabs.stop * self._key_places)
        count = tokens.stop - tokens.start
        return Keys(slabs, tokens, count if self.sizes.heads * count % _SAME_SETS else count + 16)


class Block:
    """Some queries, a box of places and slabs, and some heads."""

    def __init__(self, heads: slice, slabs: slice, places: slice, strips: "_Strips") -> None:
        self.heads, self._slabs, self._places, self._strips = heads, slabs, places, strips
        self._box = (slabs.stop - slabs.start, places.stop - places.start)
        self.num_heads, self.num_queries = heads.stop - heads.start, math.prod(self._box)

    def take(self, x: Tensor) -> Tensor:
        """Columns of this block: ``(head, component, token, *)`` to ``(head, component, query, *)``."""
        return x.unflatten(2, self._strips.grid)[self.heads, :, self._slabs, self._places].flatten(2, 3)

    def put(self, x: Tensor, value: Tensor) -> None:
        """Write the columns that :meth:`take` reads."""
        x.unflatten(2, self._strips.grid)[self.heads, :, self._slabs, self._places] = value.unflatten(2, self._box)

    def part(self, buffer: Tensor, keys: Keys, parts: int = 1) -> Tensor:
        """The part ``(query, part * head, row)`` of a buffer."""
        shape = (self.num_queries, parts * self.num_heads, keys.row)
        return buffer[: math.prod(shape)].view(shape)

    def times_table(self, x: Tensor, keys: Keys, *, out: Tensor) -> None:
        """Multiply ``(query, n, row of the table)`` by the table's rows for every query and key."""
        for queries, window in self._windows(keys.slabs.start, keys.row):
            torch.bmm(x[queries], window[:, : x.shape[-1]], out=out[queries])

    def times_transposed_table(self, x: Tensor, keys: Keys, *, add_to: Tensor) -> None:
        """Multiply ``(query, n, key)`` by the transpose of these rows; one column more is the sum over the keys."""
        for queries, window in self._windows(keys.slabs.start, keys.number):
            add_to[queries].baddbmm_(x[queries], window[:, : add_to.shape[-1]].mT)

    def _windows(self, first_key_slab: int, keys: int) -> Iterator[tuple[slice, Tensor]]:
        """The table's rows ``(query, row, key)``, one slab of queries after the other."""
        slabs, places = self._box
        for n in range(slabs):
            yield (
                slice(n * places, (n + 1) * places),
                self._strips.window(self._slabs.start + n, first_key_slab, keys)[:places],
            )


class _Strips:
    """The table's rows, and a row of ones, ``(query place, row, key)``; as many slabs of keys as offsets."""

    def __init__(self, table: Tensor, lattice: Lattice, query_places: int, *, margin: int) -> None:
        first, *others = lattice
        self._trail = [axis.queries for axis in others]
        self.grid, self._key_places = (first.queries, math.prod(self._trail)), math.prod(axis.keys for axis in others)
        self._first = first
        self._offsets = -(-first.length // first.key_step)  # of each remainder
        table = _by_remainder(table, first.key_step).movedim(-1, 0).contiguous()
        rows, slab, *strides = table.stride()
        steps = [(axis.query_step * s, axis.key_step * s) for axis, s in zip(others, strides, strict=True)]
        self._windows = table.as_strided(
            (*self._trail, *table.shape[:2], *(axis.keys for axis in others)),
            (*(step for step, _ in steps), rows, slab, *(step for _, step in steps)),
        )  # (*query place, row, slab, *key place)
        self._length = table.shape[1] * self._key_places
        self._memory = table.new_zeros(query_places, len(table), self._length + margin)

    def load(self, places: slice) -> None:
        """Copy the strips of these places."""
        for strip, place in zip(self._memory, range(places.start, places.stop), strict=False):
            index = []
            for length in reversed(self._trail):  # entries of the table run from the last query to the first
                index.append(length - 1 - place % length)
                place //= length
            window = self._windows[tuple(reversed(index))]
            strip[:, : self._length].view(window.shape).copy_(window)

    def window(self, query_slab: int, key_slab: int, keys: int) -> Tensor:
        """``(query place, row, key)`` for queries in one slab and keys from ``key_slab`` on."""
        axis = self._first
        slab, remainder = divmod(axis.query_step * (axis.queries - 1 - query_slab), axis.key_step)
        return self._memory.narrow(2, (remainder * self._offsets + slab + key_slab) * self._key_places, keys)


def _by_remainder(table: Tensor, step: int) -> Tensor:
    """Entries ``0, step, 2 step, ...`` of the first axis, then ``1, 1 + step, ...``, equally many of each."""
    if step == 1:
        return table
    rest = table.new_zeros(-len(table) % step, *table.shape[1:])
    return torch.cat([table, rest]).unflatten(0, (-1, step)).transpose(0, 1).flatten(0, 1)


def _choose_sizes(lattice: Lattice, depth: int, heads: int, *, all_keys: bool) -> Sizes:
    (slabs, key_slabs), offsets = (lattice[0].queries, lattice[0].keys), lattice[0].length
    places, key_places = (math.prod(numbers) for numbers in zip(*(axis[:2] for axis in lattice[1:]), strict=True))
    few_heads = min(max(heads, 1), _MOST_HEADS)
    if not all_keys:
        key_slabs = _even_share(key_slabs, _MOST_SCORES // (2 * few_heads * _MOST_QUERIES) // key_places)
    keys = key_slabs * key_places
    queries = min(_MOST_QUERIES, _MOST_SCORES // (2 * few_heads * keys))
    strip = (depth + 1) * offsets * key_places
    query_places = _even_share(places, min(queries, _MOST_SCORES // strip))
    query_slabs = _even_share(slabs, queries // query_places)
    scores_of_head = 2 * query_places * query_slabs * keys
    return Sizes(query_slabs, query_places, key_slabs, _even_share(heads, _MOST_SCORES // scores_of_head))


def _even_share(total: int, most: int) -> int:
    """Size of the fewest pieces with at most ``most`` each, or with 1."""
    return max(1, math.ceil(total / max(1, math.ceil(total / max(1, most)))))


def _pieces(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
