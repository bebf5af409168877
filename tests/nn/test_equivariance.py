"""Every layer commutes exactly with grid rotations, pointwise layers with all rotations."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from checks import without_type_checks
from nn.layers import (
    ALL_VARIANTS,
    POINTWISE,
    SIZES,
    VARIANTS,
    features,
    image,
    randomized,
    supported_inputs,
    worst_error,
)
from steerformer import SO2, FieldType


def test_every_layer_is_tested(group):
    for variants in (ALL_VARIANTS, VARIANTS):
        tried = {type(make(group)).__name__ for where, make in (each.values for each in variants) if where is group}
        two_inputs = {"Decoder", "DecoderBlock"}  # in test_decoder.py
        assert tried == set(sf.nn.__all__) - {"PositionalEncoding"} - two_inputs


@pytest.mark.parametrize(("group", "make"), ALL_VARIANTS)
def test_every_layer_is_exact_under_grid_rotations(group, make):
    """In float64 on all supported grids, and to rounding error in float32."""
    layer = randomized(make(group)).eval()
    sizes = [tuple(x.shape[2:]) for x in supported_inputs(layer)]
    assert worst_error(layer, sizes[0], dtype=torch.float32) < 1e-5
    for size in sizes:
        assert worst_error(layer, size) < 1e-10, size


def test_network_with_batch_norm_is_exact_in_training(group):
    field_type = features(group)
    net = nn.Sequential(
        sf.nn.Conv(image(group), field_type, kernel_size=3),
        sf.nn.BatchNorm(field_type),
        sf.nn.NormReLU(field_type, bias=-0.1),
        sf.nn.AvgPool(field_type, kernel_size=2),
        sf.nn.Gated(field_type),
    )
    net.in_type, net.out_type = image(group), field_type
    for size in SIZES[group.dim]:
        assert worst_error(net.train(), size) < 1e-10, size


class TorchLayer(nn.Module):
    """A torch layer applied to the channels of a field."""

    def __init__(self, layer, in_type, out_type=None):
        super().__init__()
        self.layer, self.in_type, self.out_type = layer, in_type, out_type or in_type

    def forward(self, x):
        return self.layer(x)


class CenteredAveragePool(nn.Module):
    def forward(self, x):
        return {2: F.avg_pool2d, 3: F.avg_pool3d}[x.ndim - 2](x, 2, 2)


def plain_conv(group):
    convolution = {2: nn.Conv2d, 3: nn.Conv3d}[group.dim]
    return TorchLayer(convolution(features(group).channels, features(group).channels, 3, padding=1), features(group))


def plain_relu(group):
    return TorchLayer(nn.ReLU(), features(group))


def plain_batch_norm(group):
    norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[group.dim](features(group).channels)
    return TorchLayer(randomized(norm), features(group))


@pytest.mark.parametrize("make", [plain_conv, plain_relu, plain_batch_norm])
def test_torch_layers_are_not_equivariant(group, make):
    layer = make(group).eval()
    for size in SIZES[group.dim]:
        assert worst_error(layer, size) > 1e-2, size
    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(layer, size=5)


def test_torch_pooling_fails_on_odd_grid(group):
    pool = TorchLayer(CenteredAveragePool(), image(group))
    assert worst_error(pool, 6) < 1e-10
    assert worst_error(pool, 7) > 1e-2


def test_torch_strided_convolution_fails_on_even_grid(group):
    """A common mistake in equivariant networks, even though the kernel is steerable."""
    inner = sf.nn.Conv(image(group), image(group), kernel_size=3)
    convolution = {2: F.conv2d, 3: F.conv3d}[group.dim]
    strided = TorchLayer(lambda x: convolution(x, inner.kernel().to(x), stride=2, padding=1), image(group))
    assert worst_error(strided, 7) < 1e-6  # float32 weights, but centered
    assert worst_error(strided, 6) > 1e-2


@pytest.mark.parametrize("make", POINTWISE)
def test_pointwise_layers_commute_with_every_rotation(group, make, float64):
    """On fields with and without spatial axes."""
    layer = randomized(make(group)).eval()
    for size in ((), 3):
        x = layer.in_type.randn(3, size)
        y = layer(x)
        for _ in range(3):
            R = group.random_rotation()
            with without_type_checks():
                before, after = layer.in_type.matrix(R), layer.out_type.matrix(R)
                found = layer(torch.einsum("ij,bj...->bi...", before, x))
            assert_close(found, torch.einsum("ij,bj...->bi...", after, y), rtol=0, atol=1e-10)


STRIDES = list(product((1, 2, 3), (1, 2, 3, 4, 5)))


@pytest.mark.slow
@pytest.mark.parametrize(("stride", "kernel"), STRIDES)
def test_strided_convolutions_are_exact_on_every_supported_grid(group, stride, kernel):
    for padding in ("same", 0, 1):
        if padding == "same" and stride == 1 and kernel % 2 == 0:
            continue  # an even kernel cannot keep the size
        layer = sf.nn.Conv(
            FieldType.image(group, 1),
            FieldType(group, (1, 1)),
            kernel_size=kernel,
            stride=stride,
            padding=padding,
            max_impurity=1.0,
        )
        candidates = [5, 6, 7, 8, (5, 6, 7)] if group is SO2 else [5, 6]
        for x in list(supported_inputs(layer, sizes=candidates)):
            assert worst_error(layer, x.shape[2:]) < 1e-10, (padding, x.shape)
