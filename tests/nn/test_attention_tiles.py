"""Tiles of attention: their sizes, and products with the table against its definition."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from nn.attention_inputs import fields
from steerformer.nn import PositionalEncoding
from steerformer.nn import attention_tiles as tiles
from steerformer.nn.offsets import OffsetAxis, lattice_within, pair_entries

SPACES = [(1, 1), (8, 8), (32, 32), (64, 64), (3, 500), (500, 3), (1, 5000), (6, 6, 6), (10, 10, 10), (24, 24, 24)]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_tiles_have_limited_memory(space):
    limit = tiles._MOST_SCORES
    for heads, depth, all_keys in itertools.product((0, 1, 8, 200), (0, 16), (False, True)):
        sizes = tiles._choose_sizes(lattice_within(space), depth, heads, all_keys=all_keys)
        assert all(size >= 1 for size in sizes)
        places = math.prod(space[1:])
        queries, keys = sizes.query_slabs * sizes.query_places, sizes.key_slabs * places
        assert queries <= tiles._MOST_QUERIES
        assert keys == math.prod(space) or not all_keys
        assert 2 * queries * keys * sizes.heads <= limit
        assert sizes.query_places * (depth + 1) * (2 * space[0] - 1) * places <= limit


LATTICES = {
    "one-grid": [(3, 3, 1, 1), (4, 4, 1, 1), (2, 2, 1, 1)],
    "two-grids": [(3, 4, 1, 1), (4, 3, 1, 1), (1, 2, 1, 1)],
    "coarse-context": [(4, 2, 1, 2), (3, 2, 1, 2), (2, 1, 1, 2)],
    "fine-context": [(2, 4, 3, 2), (2, 3, 2, 1), (1, 3, 3, 1)],
}


@pytest.mark.parametrize("all_keys", [False, True])
@pytest.mark.parametrize("case", LATTICES)
def test_products_with_the_table_match_its_definition(group, case, all_keys, float64, monkeypatch):
    """A loop over queries and keys, where entry ``a (n - 1 - i) + b j`` of an axis belongs to query i and key j."""
    lattice = tuple(OffsetAxis(*numbers) for numbers in LATTICES[case][: group.dim])
    table = PositionalEncoding(fields(group)).table_on(lattice, (1.0,) * group.dim).detach()
    queries, keys = (list(itertools.product(*(range(axis[place]) for axis in lattice))) for place in (0, 1))
    entries = [
        [tuple(a * (n - 1 - i) + b * j for (n, _, a, b, _), i, j in zip(lattice, at, to, strict=True)) for to in keys]
        for at in queries
    ]
    rows = torch.stack([torch.stack([table[entry] for entry in of_query]) for of_query in entries])  # query, key, row
    assert_close(table.flatten(0, -2)[pair_entries(lattice, table.device)], rows)
    depth, heads = table.shape[-1], 5
    x, y = torch.randn(heads, depth, len(queries)), torch.randn(heads, len(keys), len(queries))
    sizes = tiles.Sizes(2, 3, lattice[0].keys if all_keys else 2, 2)
    monkeypatch.setattr(tiles, "_choose_sizes", lambda *arguments, **options: sizes)
    monkeypatch.setattr(tiles, "_SAME_SETS", 4)  # rows of some tiles are padded
    tiling = tiles.Tiling(table, lattice, heads, all_keys=all_keys)
    products = torch.full((heads, len(keys), len(queries)), torch.nan)
    back = torch.full((heads, depth, len(queries)), torch.nan)
    for block in tiling.blocks():
        of_rows = torch.zeros(block.num_queries, block.num_heads, depth)
        for tile in tiling.keys:
            out = block.part(tiling.new_buffer(x), tile)
            block.times_table(block.take(x).permute(2, 0, 1).contiguous(), tile, out=out)
            block.put(products[:, tile.tokens], out[..., : tile.number].permute(1, 2, 0))
            weights = block.take(y[:, tile.tokens]).permute(2, 0, 1).contiguous()
            block.times_transposed_table(weights, tile, add_to=of_rows)
        block.put(back, of_rows.permute(1, 2, 0))
    assert_close(products, torch.einsum("hri,ijr->hji", x, rows))
    assert_close(back, torch.einsum("hji,ijr->hri", y, rows))
