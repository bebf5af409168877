"""Linear interpolation between centered grids."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from nn.layers import gapped, in_space, worst_error
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("float64")


def interpolation_matrix(old, new):
    """Both grids have the same extent: sample i is at (i + 1/2) old / new - 1/2, clamped to the grid."""
    places = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    rows = np.zeros((new, old))
    for row, place in zip(rows, places, strict=True):
        low = min(int(place), old - 1)
        row[low] += 1 - (place - low)
        row[min(low + 1, old - 1)] += place - low
    return rows


@pytest.mark.parametrize("old", [(4, 6, 3), (5, 4, 7)])
def test_resample_is_linear_along_each_axis(group, old):
    for new in ((4, 6, 3), (8, 5, 5), (1, 2, 9)):
        old, new = in_space(group, old), in_space(group, new)
        layer = sf.nn.Resample(gapped(group), size=new)
        x = layer.in_type.randn(2, old)
        expected = x
        for axis, (n, m) in enumerate(zip(old, new, strict=True), start=2):
            matrix = torch.from_numpy(interpolation_matrix(n, m))
            expected = torch.movedim(torch.tensordot(expected, matrix, dims=([axis], [1])), -1, axis)
        assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_resample_keeps_ramps_away_from_edges(group):
    layer = sf.nn.Resample(FieldType.image(group, 1), scale=2.0)
    ramp = (torch.arange(7.0) - 3).view(-1, *[1] * (group.dim - 1)).expand(*in_space(group, 7))
    y = layer(ramp[None, None].contiguous())[0, 0]
    expected = ((torch.arange(14.0) - 6.5) / 2).view(-1, *[1] * (group.dim - 1)).expand_as(y)
    inner = (slice(1, -1),) * group.dim
    assert_close(y[inner], expected[inner], rtol=0, atol=1e-12)


def test_scale_is_exact_on_every_grid(group):
    sizes = (4, 5, 7, (4, 5, 6)) if group is SO2 else (3, 4)
    for scale, size in itertools.product((0.5, 0.75, 1.0, 1.5, 2.0, 3.0), sizes):
        layer = sf.nn.Resample(gapped(group), scale=scale)
        assert worst_error(layer.eval(), size) < 1e-10, (scale, size)
        space = in_space(group, size)
        y = layer(layer.in_type.randn(1, space))
        assert tuple(y.shape[2:]) == tuple(max(round(n * scale), 1) for n in space)


def test_size_in_call_overrides_layer_options(group):
    """As in a decoder, which resamples to the size of the encoder's features."""
    layer, x = sf.nn.Resample(gapped(group)), gapped(group).randn(1, 4)
    wanted = (7, 5, 6)[: group.dim]
    assert layer(x, wanted).shape[2:] == wanted
    assert layer(x, 6).shape[2:] == in_space(group, 6)
    assert sf.nn.Resample(gapped(group), scale=2.0)(x, 5).shape[2:] == in_space(group, 5)
    assert sf.nn.Resample(gapped(group), size=9)(x, 5).shape[2:] == in_space(group, 5)


def test_resample_to_same_size_is_identity(group):
    x = gapped(group).randn(2, (3, 4, 5)[: group.dim])
    assert_close(sf.nn.Resample(gapped(group), scale=1.0)(x), x, rtol=0, atol=1e-14)


def test_resample_restores_size_after_pool(group):
    field_type, x = gapped(group), gapped(group).randn(1, 7)
    coarse = sf.nn.AvgPool(field_type, kernel_size=2)(x)
    assert sf.nn.Resample(field_type)(coarse, x.shape[2:]).shape == x.shape


@pytest.mark.parametrize("size", [70, (41, 9)])
def test_large_grids_are_multiplied_in_tiles(size):
    """Values and gradients of torch's interpolation, up and down, where matrices are cut into several tiles."""
    x = FieldType.image(SO2, 2).randn(2, size).requires_grad_()
    for new in ((140, 33), (20, 150), (71, 70), (1, 64), (97, 9)):
        found = sf.nn.Resample(FieldType.image(SO2, 2), size=new)(x)
        expected = F.interpolate(x, size=new, mode="bilinear")
        grad = torch.randn_like(found)
        assert_close(found, expected, rtol=0, atol=1e-12)
        assert_close(*(torch.autograd.grad(y, x, grad)[0] for y in (found, expected)), rtol=0, atol=1e-12)


def test_large_volumes_are_multiplied_in_tiles():
    x = FieldType.image(SO3, 1).randn(2, (5, 47, 70)).requires_grad_()
    found = sf.nn.Resample(FieldType.image(SO3, 1), size=(41, 94, 35))(x)
    expected = F.interpolate(x, size=(41, 94, 35), mode="trilinear")
    grad = torch.randn_like(found)
    assert_close(found, expected, rtol=0, atol=1e-12)
    assert_close(*(torch.autograd.grad(y, x, grad)[0] for y in (found, expected)), rtol=0, atol=1e-12)


def test_gradients_of_resampling_are_differentiable(group):
    """The layer is linear, so its gradient is linear in the gradient of the output, and independent of the input."""
    layer = sf.nn.Resample(gapped(group), scale=2.0)
    x, weights = layer.in_type.randn(1, 3).requires_grad_(), torch.randn(1, 1, *in_space(group, 6)).requires_grad_()
    (grad,) = torch.autograd.grad((weights * layer(x)).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum() / 2, weights)
    assert_close(second, layer(grad.detach()).sum(dim=1, keepdim=True))


def test_half_precision_and_memory_formats_agree(group):
    layer, x = sf.nn.Resample(gapped(group), scale=2.0), gapped(group).randn(2, 4)
    assert_close(layer(x.bfloat16()).double(), layer(x), rtol=0, atol=0.05)
    assert_close(layer(x.flip(0).transpose(0, 1).contiguous().transpose(0, 1)), layer(x).flip(0))
