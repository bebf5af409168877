"""Tiles of attention: some queries and heads against some keys, small enough for the CPU caches.

Tokens are the voxels of a grid, which its first axis cuts into slabs: the rows of an image, the planes of a volume. The
table's rows for one query and all keys depend on the place of the query within its slab, and on the slab only by where
they begin: they are a window of a strip of memory. A strip is copied once for all slabs, and matrix products read its
windows in place.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_MOST_SCORES = 1 << 22  # real numbers of a tile, and of the strips: more would not fit the CPU caches
_MOST_QUERIES = 256  # matrix products with fewer queries take longer, with more they take more memory
_MOST_HEADS = 8
_SAME_SETS = 1024  # rows that begin at multiples of 4 kB compete for few cache lines


class Sizes(NamedTuple):
    """Sizes of the grid and of its tiles."""

    slabs: int
    places: int
    """Tokens of a slab."""
    query_slabs: int
    query_places: int
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
        table: ``(*offsets, row)``, :meth:`PositionalEncoding.table`.
        heads: number of heads of all samples.
        all_keys: whether a tile has all keys.
    """

    def __init__(self, table: Tensor, heads: int, *, all_keys: bool = False) -> None:
        space = [(length + 1) // 2 for length in table.shape[:-1]]
        self.heads, self.depth = heads, table.shape[-1]
        self.sizes = _choose_sizes(space, self.depth, heads, all_keys=all_keys)
        self.keys = [self._tile(slabs) for slabs in _pieces(self.sizes.slabs, self.sizes.key_slabs)]
        self.strips = _Strips(table, space, self.sizes, margin=max(keys.row - keys.number for keys in self.keys))

    def blocks(self) -> Iterator["Block"]:
        """All blocks of queries and heads; only the last one may be used."""
        for places in _pieces(self.sizes.places, self.sizes.query_places):
            self.strips.load(places)
            for slabs in _pieces(self.sizes.slabs, self.sizes.query_slabs):
                for heads in _pieces(self.heads, self.sizes.heads):
                    yield Block(heads, slabs, places, self.strips)

    def new_buffer(self, like: Tensor, parts: int = 1) -> Tensor:
        """Memory for the scores of a tile."""
        queries = self.sizes.query_slabs * self.sizes.query_places
        return like.new_empty(parts * queries * self.sizes.heads * max(keys.row for keys in self.keys))

    def _tile(self, slabs: slice) -> Keys:
        places = self.sizes.places
        tokens = slice(slabs.start * places, slabs.stop * places)
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

    def __init__(self, table: Tensor, space: Sequence[int], sizes: Sizes, *, margin: int) -> None:
        self.grid, self._trail = (sizes.slabs, sizes.places), tuple(space[1:])
        table = F.pad(table, (0, 1), value=1.0).movedim(-1, 0).contiguous()
        rows, first, *others = table.stride()
        self._windows = table.as_strided(
            (*self._trail, *table.shape[:2], *self._trail), (*others, rows, first, *others)
        )  # (*query place, row, slab, *key place)
        self._length = table.shape[1] * sizes.places
        self._memory = table.new_zeros(sizes.query_places, len(table), self._length + margin)

    def load(self, places: slice) -> None:
        """Copy the strips of these places."""
        for strip, place in zip(self._memory, range(places.start, places.stop), strict=False):
            index = []
            for length in reversed(self._trail):  # entry t of an axis has offset n - 1 - t
                index.append(length - 1 - place % length)
                place //= length
            window = self._windows[tuple(reversed(index))]
            strip[:, : self._length].view(window.shape).copy_(window)

    def window(self, query_slab: int, key_slab: int, keys: int) -> Tensor:
        """``(query place, row, key)`` for queries in one slab and keys from ``key_slab`` on."""
        slabs, places = self.grid
        return self._memory.narrow(2, (slabs - 1 - query_slab + key_slab) * places, keys)


def _choose_sizes(space: Sequence[int], depth: int, heads: int, *, all_keys: bool) -> Sizes:
    slabs, places = space[0], math.prod(space[1:])
    few_heads = min(max(heads, 1), _MOST_HEADS)
    key_slabs = slabs if all_keys else _even_share(slabs, _MOST_SCORES // (2 * few_heads * _MOST_QUERIES) // places)
    keys = key_slabs * places
    queries = min(_MOST_QUERIES, _MOST_SCORES // (2 * few_heads * keys))
    strip = (depth + 1) * (2 * slabs - 1) * places
    query_places = _even_share(places, min(queries, _MOST_SCORES // strip))
    query_slabs = _even_share(slabs, queries // query_places)
    scores_of_head = 2 * query_places * query_slabs * keys
    return Sizes(
        slabs, places, query_slabs, query_places, key_slabs, _even_share(heads, _MOST_SCORES // scores_of_head)
    )


def _even_share(total: int, most: int) -> int:
    """Size of the fewest pieces with at most ``most`` each, or with 1."""
    return max(1, math.ceil(total / max(1, math.ceil(total / max(1, most)))))


def _pieces(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
