"""Local attention: boxes of queries, each with the box of keys within reach of any of them.

A region is attention between two small grids, all pairs at once; backward computes its scores again, so memory grows
linearly with the tokens. Regions of one shape have the same offsets, and are handled together.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from steerformer.nn.attention_dense import backward_of_pairs, forward_of_pairs
from steerformer.nn.attention_scores import Tokens
from steerformer.nn.offsets import Lattice, entries_of, pair_entries, pieces

_MOST_NUMBERS = 1 << 21  # of the scores of a region, and of the table's rows for its pairs
_MOST_TOGETHER = 1 << 20  # scores, real numbers, of regions that are handled together
_SHAPE_COST = 1 << 15  # of regions of another shape, in scores: calls of torch
_REGION_COST = 1 << 13  # of a region, in scores: copies of its voxels
_ROW_COST = 0.1  # of a number of the table's rows, in scores
_SIDES = (*range(1, 17), 20, 24, 32, 48, 64)

Box = tuple[slice, ...]


class Regions(NamedTuple):
    """Regions of one shape."""

    queries: list[Box]
    keys: list[Box]
    basis: Tensor
    """The table's rows of every query and key, ``(query, key, row)``."""
    falloff: Tensor
    """The bias of every query and key, -inf beyond the radius."""


def forward_in_regions(lattice: Lattice, table: Tensor, falloff: Tensor, given: Tokens) -> tuple[Tensor, Tensor]:
    """Weighted means of content ``(head, component, query)`` and position ``(head, row, query)``."""
    content, position = (
        given.q.new_zeros(len(given.q), n, given.q.shape[2]) for n in (*given.v.shape[1:2], table.shape[-1])
    )
    space = [axis.queries for axis in lattice]
    for regions in all_regions(lattice, table, falloff, given):
        for whole, parts in zip((content, position), _attend(lattice, regions, given)[1], strict=False):
            _add(whole, space, regions.queries, parts)
    return content, position


def backward_in_regions(
    lattice: Lattice, table: Tensor, falloff: Tensor, given: Tokens, grad_content: Tensor, grad_position: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    of_queries, of_keys = ([axis[place] for axis in lattice] for place in (0, 1))
    found = into_q, into_k, into_v, into_rows = [x.new_zeros(x.shape) for x in given[:4]]
    for regions in all_regions(lattice, table, falloff, given):
        (q, k, v, _), outputs = _attend(lattice, regions, given)
        of_content, of_position = (_take(x, of_queries, regions.queries) for x in (grad_content, grad_position))
        of_parts = backward_of_pairs(of_content, of_position, q, k, v, regions.basis, *outputs)
        places = [(of_queries, regions.queries), *[(of_keys, regions.keys)] * 2, (of_queries, regions.queries)]
        for whole, parts, place in zip(found, of_parts, places, strict=True):
            _add(whole, *place, parts)
    return into_q, into_k, into_v, into_rows


def weights_in_regions(
    lattice: Lattice, table: Tensor, falloff: Tensor, given: Tokens, *, only_largest: bool
) -> Tensor:
    """Attention weights of all pairs, ``(head, key, query)``, or the largest of each query, ``(head, 1, query)``."""
    heads, _, queries = given.q.shape
    of_queries, of_keys = ([axis[place] for axis in lattice] for place in (0, 1))
    found = given.q.new_zeros(heads, 1 if only_largest else given.k.shape[2], queries)
    for regions in all_regions(lattice, table, falloff, given):
        weights = _attend(lattice, regions, given)[1][-1].mT  # region, head, key, query
        if only_largest:
            _add(found, of_queries, regions.queries, weights.amax(dim=2, keepdim=True))
            continue
        by_voxel = found.unflatten(2, of_queries).unflatten(1, of_keys)
        for at, to, part in zip(regions.queries, regions.keys, weights, strict=True):
            here = by_voxel[(slice(None), *to, *at)]
            here.copy_(part.reshape(here.shape))
    return found


def all_regions(lattice: Lattice, table: Tensor, falloff: Tensor, given: Tokens) -> Iterator[Regions]:
    """Regions that cover all queries; queries without any key within reach are left out."""
    heads, depth = len(given.q), table.shape[-1]
    of_axes = [
        [(i, axis.keys_of(i)) for i in pieces(axis.queries, side)]
        for axis, side in zip(lattice, _sides(lattice, heads, depth), strict=True)
    ]
    shapes: dict[tuple[Lattice, tuple[int, ...]], list[tuple[Box, Box]]] = defaultdict(list)
    for boxes in itertools.product(*of_axes):
        if all(keys for _, keys in boxes):
            parts = [axis.part(*box) for axis, box in zip(lattice, boxes, strict=True)]
            at, to = (tuple(slice(r.start, r.stop) for r in box) for box in zip(*boxes, strict=True))
            shapes[tuple(part for part, _ in parts), tuple(first for _, first in parts)].append((at, to))
    for (part, first), regions in shapes.items():
        index = pair_entries(part, table.device)
        basis, biases = (entries_of(x, lattice, part, first) for x in (table, falloff))
        basis, biases = basis.flatten(0, -2)[index], biases.flatten()[index]
        together = max(1, _MOST_TOGETHER // max(1, 2 * heads * index.numel()))
        for start in range(0, len(regions), together):
            chosen = regions[start : start + together]
            yield Regions([at for at, _ in chosen], [to for _, to in chosen], basis, biases)


def _attend(lattice: Lattice, regions: Regions, given: Tokens) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Queries, keys, values and rows of all regions, and the results of :func:`forward_of_pairs`."""
    of_queries, of_keys = ([axis[place] for axis in lattice] for place in (0, 1))
    q, rows = (_take(x, of_queries, regions.queries) for x in (given.q, given.rows))
    k, v = (_take(x, of_keys, regions.keys) for x in (given.k, given.v))
    bias = regions.falloff
    if given.bias is not None:
        bias = bias + _take(given.bias[:, None], of_keys, regions.keys)
    found = forward_of_pairs(q, k, v, rows, regions.basis, partial(_softmax, bias=bias), given.parts, given.signed)
    return (q, k, v, rows), found


def _softmax(moduli: Tensor, bias: Tensor) -> Tensor:
    """Softmax over keys with a bias; zeros where no key is valid."""
    weights = torch.where(bias == -math.inf, bias, moduli + bias).softmax(dim=-1)  # scores may be infinite
    return weights.masked_fill_(bias.amax(dim=-1, keepdim=True) == -math.inf, 0)


def _take(x: Tensor, space: Sequence[int], boxes: Sequence[Box]) -> Tensor:
    """Voxels of some boxes, ``(box, head, component, voxel)``."""
    by_voxel = x.unflatten(2, space)
    return torch.stack([by_voxel[(slice(None), slice(None), *box)].flatten(2) for box in boxes])


def _add(x: Tensor, space: Sequence[int], boxes: Sequence[Box], parts: Tensor) -> None:
    """Add to the voxels of some boxes."""
    by_voxel = x.unflatten(2, space)
    for box, part in zip(boxes, parts, strict=True):
        here = by_voxel[(slice(None), slice(None), *box)]
        here += part.view(here.shape)


def _sides(lattice: Lattice, heads: int, depth: int) -> tuple[int, ...]:
    """Sides of the boxes of queries, all alike, with the least work."""

    def work(side: int) -> float:
        boxes = [[(i, axis.keys_of(i)) for i in pieces(axis.queries, side)] for axis in lattice]
        numbers = [[len(i) * len(j) for i, j in of_axis] for of_axis in boxes]
        scores, largest = (math.prod(map(of, numbers)) for of in (sum, max))
        regions = math.prod(map(len, boxes))
        shapes = math.prod(
            len({axis.part(*box) for box in of_axis}) for axis, of_axis in zip(lattice, boxes, strict=True)
        )
        if side > 1 and largest * max(depth + 1, 2 * heads) > _MOST_NUMBERS:
            return math.inf
        return heads * scores + _REGION_COST * regions + shapes * (_SHAPE_COST + _ROW_COST * depth * largest)

    side = min((*_SIDES, max(axis.queries for axis in lattice)), key=work)
    return (side,) * len(lattice)
