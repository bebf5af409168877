"""Padding masks: what invalid voxels hold, even NaN, does not reach valid ones, in values and in gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.attention_inputs import core_inputs, fields, grid, some_mask
from steerformer.nn.attention_core import attend, attention_weights

IMPLEMENTATIONS = ("auto", "dense", "blockwise")
CONTENTS = (math.nan, math.inf, -math.inf, 1e4)


def outcome(layer, x, mask):
    """Output, gradient by the input at valid voxels, and gradients by the parameters; the loss reads valid voxels."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x, mask)
    valid = mask[:, None].expand_as(y)
    (y * torch.linspace(-1, 2, y.numel()).sin().view_as(y))[valid].sum().backward()
    return y[valid], x.grad[valid], *(parameter.grad.clone() for parameter in layer.parameters())


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(
    "options", [{}, {"qk_norm": 2.0}, {"positional": False}], ids=["plain", "normalized", "nowhere"]
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_contents_of_invalid_voxels_do_not_matter(group, implementation, options, content):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation, **options)
    x, mask = layer.in_type.randn(3, grid(group)), some_mask(3, grid(group))
    mask[2] = False
    expected = outcome(layer, x, mask)
    x[:, 1:] = torch.where(mask[:, None], x[:, 1:], content)
    found = outcome(layer, x, mask)
    assert len(found[0])
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for return_weights in (True, "max"):
        assert all(values.isfinite().all() for values in layer(x, mask, return_weights=return_weights))


@pytest.mark.parametrize("content", CONTENTS)
def test_encoder_ignores_contents_of_invalid_voxels(group, content):
    layer = sf.nn.Encoder(fields(group), num_heads=2, depth=2)
    x, mask = layer.in_type.randn(2, grid(group)), some_mask(2, grid(group))
    expected = outcome(layer, x, mask)
    for ours, theirs in zip(outcome(layer, torch.where(mask[:, None], x, content), mask), expected, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_invalid_masks_raise(group, unchecked):
    for layer in (sf.nn.Attention(fields(group), num_heads=2), sf.nn.TransformerBlock(fields(group), num_heads=2)):
        x = layer.in_type.randn(2, grid(group))
        for mask in (x[:, 0] > 0)[:1], x[:, 0]:
            with pytest.raises(ValueError, match=r"a mask is boolean, True for valid voxels, of shape"):
                layer(x, mask)


def test_nan_at_valid_voxels_is_not_hidden(group):
    layer = sf.nn.Attention(fields(group), num_heads=2)
    x, mask = layer.in_type.randn(2, grid(group)), some_mask(2, grid(group))
    x[0, 0].view(-1)[0] = math.nan  # all voxels of the first sample are valid
    assert layer(x, mask)[0].isnan().all()
    assert layer(x, mask)[1].isfinite().all()


@pytest.mark.parametrize("content", [*CONTENTS, 1e30])
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_keys_and_values_at_invalid_voxels_do_not_matter(group, implementation, content):
    inputs, table = core_inputs(group)
    mask = torch.rand(2, inputs[0].shape[-1]) > 0.4
    q, k, v, *maps = inputs

    def attended(k, v):
        for value in inputs:
            value.grad = None
        out = attend(q, k, v, *maps, table, mask=mask, implementation=implementation)
        out.sin().sum().backward()
        return out, q.grad, *(value.grad for value in maps)

    expected = attended(k, v)
    broken = [torch.where(mask[:, None, None], value.detach(), content).requires_grad_() for value in (k, v)]
    for ours, theirs in zip(attended(*broken), expected, strict=True):
        assert_close(ours, theirs)
    for value in broken:
        assert not value.grad[~mask[:, None, None].expand_as(value)].any()
        assert value.grad.any()
    assert_close(
        attention_weights(q, broken[0], maps[0], table, mask=mask), attention_weights(q, k, maps[0], table, mask=mask)
    )


def test_second_derivatives_with_nan_at_invalid_voxels(group):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation="dense")
    x, mask = layer.in_type.randn(2, grid(group)), some_mask(2, grid(group))
    valid = mask[:, None].expand_as(x)
    found = []
    for content in (0.0, math.nan):
        field = torch.where(valid, x, content).requires_grad_()
        (first,) = torch.autograd.grad(layer(field, mask)[valid].sin().sum(), field, create_graph=True)
        found.append(torch.autograd.grad(first[valid].square().sum(), field)[0][valid])
    assert_close(*found)
