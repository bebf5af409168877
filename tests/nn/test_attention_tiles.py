"""Tiles of attention: their sizes, and products with the table against its definition."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from nn.attention_inputs import fields
from steerformer import SO2
from steerformer.nn import PositionalEncoding
from steerformer.nn import attention_tiles as tiles

SPACES = [(1, 1), (8, 8), (32, 32), (64, 64), (3, 500), (500, 3), (1, 5000), (6, 6, 6), (10, 10, 10), (24, 24, 24)]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_tiles_have_limited_memory(space):
    limit = tiles._MOST_SCORES
    for heads, depth, all_keys in itertools.product((0, 1, 8, 200), (0, 16), (False, True)):
        sizes = tiles._choose_sizes(space, depth, heads, all_keys=all_keys)
        assert all(size >= 1 for size in sizes)
        assert (sizes.slabs, sizes.places) == (space[0], math.prod(space[1:]))
        queries, keys = sizes.query_slabs * sizes.query_places, sizes.key_slabs * sizes.places
        assert queries <= tiles._MOST_QUERIES
        assert keys == math.prod(space) or not all_keys
        assert 2 * queries * keys * sizes.heads <= limit
        assert sizes.query_places * (depth + 1) * (2 * space[0] - 1) * sizes.places <= limit


@pytest.mark.parametrize("all_keys", [False, True])
def test_products_with_the_table_match_its_definition(group, all_keys, float64, monkeypatch):
    """A loop over queries and keys, where entry ``t`` of an axis has offset ``n - 1 - t``."""
    space = (3, 4) if group is SO2 else (3, 2, 4)
    table = PositionalEncoding(fields(group)).table(space).detach()
    grid = list(itertools.product(*map(range, space)))
    tokens, depth, heads = len(grid), table.shape[-1], 5
    entries = [[tuple(n - 1 - a + b for n, a, b in zip(space, i, j, strict=True)) for j in grid] for i in grid]
    rows = torch.stack([torch.stack([table[entry] for entry in of_query]) for of_query in entries])  # query, key, row
    x, y = torch.randn(heads, depth, tokens), torch.randn(heads, tokens, tokens)
    sizes = tiles.Sizes(space[0], math.prod(space[1:]), 2, 3, space[0] if all_keys else 2, 2)
    monkeypatch.setattr(tiles, "_choose_sizes", lambda *arguments, **options: sizes)
    monkeypatch.setattr(tiles, "_SAME_SETS", 4)  # rows of some tiles are padded
    tiling = tiles.Tiling(table, heads, all_keys=all_keys)
    products, back = torch.full((heads, tokens, tokens), torch.nan), torch.full((heads, depth, tokens), torch.nan)
    for block in tiling.blocks():
        of_rows = torch.zeros(block.num_queries, block.num_heads, depth)
        for keys in tiling.keys:
            out = block.part(tiling.new_buffer(x), keys)
            block.times_table(block.take(x).permute(2, 0, 1).contiguous(), keys, out=out)
            block.put(products[:, keys.tokens], out[..., : keys.number].permute(1, 2, 0))
            weights = block.take(y[:, keys.tokens]).permute(2, 0, 1).contiguous()
            block.times_transposed_table(weights, keys, add_to=of_rows)
        block.put(back, of_rows.permute(1, 2, 0))
    assert_close(products, torch.einsum("hri,ijr->hji", x, rows))
    assert_close(back, torch.einsum("hji,ijr->hri", y, rows))
