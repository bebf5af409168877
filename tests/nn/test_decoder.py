"""Decoder blocks: their formula, equivariance when both fields are rotated, masks, gradients, save and load."""

import math

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.attention_inputs import fields
from nn.layers import randomized
from steerformer import SO2, FieldType


def block_and_inputs(group, **options):
    other = FieldType(group, (3, 1))
    block = randomized(sf.nn.DecoderBlock(fields(group), other, num_heads=2, **options))
    return block, block.in_type.randn(2, 4 if group is SO2 else 3), other.randn(2, 5 if group is SO2 else 2)


def test_block_matches_its_formula(group, float64):
    block, x, context = block_and_inputs(group)
    f = x + block.self_attention(block.self_attention_norm(x))
    f = f + block.attention(block.attention_norm(f), block.context_norm(context))
    assert_close(block(x, context), f + block.mlp(block.mlp_norm(f)))
    cross, x, context = block_and_inputs(group, self_attention=False)
    assert cross.self_attention is None
    f = x + cross.attention(cross.attention_norm(x), cross.context_norm(context))
    assert_close(cross(x, context), f + cross.mlp(cross.mlp_norm(f)))


@pytest.mark.parametrize("options", [{}, {"radius": 1.8, "falloff": 0.9}], ids=["global", "local"])
def test_decoder_rotates_with_both_fields(group, options, float64):
    other = FieldType(group, (3, 1))
    decoder = randomized(sf.nn.Decoder(fields(group), other, num_heads=2, depth=2, **options))
    x, context = decoder.in_type.randn(1, 4 if group is SO2 else 3), other.randn(1, 5 if group is SO2 else 2)
    y = decoder(x, context)
    for R in group.grid_rotations():
        rotated = decoder(decoder.in_type.rotate(x, R), other.rotate(context, R))
        assert_close(rotated, decoder.in_type.rotate(y, R), rtol=0, atol=1e-10)
    R = group.grid_rotations()[1]
    assert not torch.allclose(decoder(decoder.in_type.rotate(x, R), context), decoder.in_type.rotate(y, R), atol=1e-3)


def test_invalid_voxels_of_both_fields_do_not_matter(group):
    block, x, context = block_and_inputs(group)
    mask, context_mask = (torch.rand(2, *field.shape[2:]) > 0.3 for field in (x, context))
    expected = block(x, context, mask, context_mask=context_mask)
    broken = [torch.where(valid[:, None], f, math.nan) for f, valid in ((x, mask), (context, context_mask))]
    found = block(*broken, mask, context_mask=context_mask)
    valid = mask[:, None].expand_as(x)
    assert_close(found[valid], expected[valid], rtol=1e-4, atol=1e-5)


def test_every_parameter_gets_a_gradient_and_is_saved(group):
    block, x, context = block_and_inputs(group)
    block(x, context).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in block.parameters())
    twin = sf.nn.DecoderBlock(fields(group), FieldType(group, (3, 1)), num_heads=2)
    twin.load_state_dict(block.state_dict())
    assert torch.equal(twin(x, context), block(x, context))


def test_spacing_of_the_context_is_for_cross_attention_alone():
    features = fields(SO2)
    block = sf.nn.DecoderBlock(features, features, num_heads=2, context_spacing=(2.0, 2.0))
    assert block(features.randn(1, 6), features.randn(1, 3)).shape == (1, features.channels, 6, 6)


def test_invalid_arguments_raise(unchecked):
    features = fields(SO2)
    with pytest.raises(ValueError, match="depth is an integer >= 1, got 0"):
        sf.nn.Decoder(features, features, num_heads=2, depth=0)
    with pytest.raises(TypeError, match="DecoderBlock needs field types, got 3"):
        sf.nn.DecoderBlock(features, 3, num_heads=2)
