"""Layers in half precision: outputs have the dtype of the input, and values close to those of float32."""

import copy

import pytest
import torch

import steerformer as sf
from nn.layers import VARIANTS, gapped, image, randomized, small_net, supported_input

DTYPES = [torch.float16, torch.bfloat16]
TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.06}  # of the largest output; a few times the rounding error


SHARE = {torch.float16: 0.05, torch.bfloat16: 0.15}  # of a gradient's norm, which has jumps where a ReLU begins


def assert_near(found, expected, dtype):
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_half_precision_is_near_single_precision(group, make, dtype):
    """In training and eval mode; both start from weights and fields that were rounded to half precision."""
    layer = randomized(make(group)).to(dtype)
    wide = copy.deepcopy(layer).float()
    x = supported_input(copy.deepcopy(wide), batch=3).to(dtype)
    for mode in (True, False):
        torch.manual_seed(1)  # dropout
        found = layer.train(mode)(x)
        torch.manual_seed(1)
        assert_near(found, wide.train(mode)(x.float()), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_gradients_in_half_precision_are_near_those_in_single_precision(group, make, dtype):
    layer = randomized(make(group)).to(dtype).eval()
    wide = copy.deepcopy(layer).float()
    x = supported_input(wide).to(dtype)
    found, expected = x.clone().requires_grad_(), x.float().requires_grad_()
    factors = torch.randn_like(wide(expected)).to(dtype)
    (layer(found) * factors).float().sum().backward()
    (wide(expected) * factors.float()).sum().backward()
    for ours, theirs in zip((found, *layer.parameters()), (expected, *wide.parameters()), strict=True):
        assert ours.grad.dtype == dtype
        assert (ours.grad.float() - theirs.grad).norm() <= SHARE[dtype] * theirs.grad.norm()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [sf.nn.LayerNorm, sf.nn.BatchNorm])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 200.0])
def test_norms_compute_statistics_in_single_precision(group, norm, dtype, scale):
    """Sums of squares overflow in float16 and lose small terms in bfloat16."""
    layer = norm(sf.FieldType(group, (64, 32, 16))).to(dtype)
    x = (scale * layer.in_type.randn(8, 4)).to(dtype)
    found, expected = layer(x), norm(layer.in_type)(x.float())
    assert found.dtype == dtype
    assert ((found.float() - expected).abs() <= torch.finfo(dtype).eps * expected.abs() + 1e-6).all()


def test_norms_have_the_dtype_of_the_input_whatever_their_weights(group):
    for norm in (sf.nn.LayerNorm, sf.nn.BatchNorm):
        layer = norm(gapped(group))
        assert layer(layer.in_type.randn(2, 3).half()).dtype == torch.float16
        assert layer.eval()(layer.in_type.randn(2, 3).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transformer_block_and_small_net_train_in_half_precision(group, dtype):
    block = sf.nn.TransformerBlock(sf.FieldType(group, (4, 4, 4)), num_heads=2)
    for net, x in ((block, block.in_type.randn(2, 4)), (small_net(group), image(group).randn(2, 8))):
        net.to(dtype)
        y = net(x.to(dtype))
        assert y.dtype == dtype
        y.float().square().mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
        assert all(buffer.dtype == dtype for buffer in net.buffers())
