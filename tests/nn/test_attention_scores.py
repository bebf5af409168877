"""Bounded attention scores: queries and keys of norm 1."""

import math

import pytest

import steerformer as sf
from nn.attention_inputs import fields, grid
from steerformer import SO2


def test_scores_of_content_are_bounded(group):
    layer = sf.nn.Attention(fields(group), num_heads=2, positional=False, qk_norm=2.0)
    x = 100 * layer.in_type.randn(2, grid(group))
    _, weights = layer(x, return_weights=True)
    assert (weights.amax(-1) / weights.amin(-1)).max() <= math.exp(2.0) * (1 + 1e-4)
    layer.qk_norm = None
    assert layer(x, return_weights=True)[1].amax() > 0.99  # the control: without a bound, single voxels are selected


def test_normalized_scores_in_half_precision():
    """Squares of large features overflow in half precision."""
    layer = sf.nn.Attention(fields(SO2), num_heads=2, qk_norm=2.0)
    x = 150 * layer.in_type.randn(2, grid(SO2))
    found, expected = layer.half()(x.half()).float(), layer.float()(x.half().float())
    assert (found - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("bound", [0, -1.0, math.inf, "two"])
def test_bound_of_scores_is_checked(bound, unchecked):
    with pytest.raises(ValueError, match="qk_norm is the largest score of content"):
        sf.nn.Attention(fields(SO2), num_heads=1, qk_norm=bound)
