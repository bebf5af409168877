"""Every layer commutes with the rotations of the grid exactly, and pointwise layers with all others too."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from nn.layers import (
    LAYERS,
    POINTWISE,
    SIZES,
    features,
    image,
    input_it_takes,
    inputs_it_takes,
    randomized,
    worst_error,
)
from steerformer import SO2, FieldType


def test_no_layer_is_left_out(group):
    tried = {type(parameter.values[0](group)).__name__ for parameter in LAYERS}
    assert tried == set(sf.nn.__all__) - {"PositionalEncoding"}


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer_is_exact_on_the_grids_rotations(group, make):
    layer = randomized(make(group)).eval()
    for x in list(inputs_it_takes(layer)):
        assert worst_error(layer, x.shape[2:]) < 1e-10


@pytest.mark.parametrize("make", LAYERS)
def test_in_float32_the_error_is_that_of_float32(group, make):
    layer = randomized(make(group)).eval()
    assert worst_error(layer, input_it_takes(layer).shape[2:], dtype=torch.float32) < 1e-5


def test_in_training_batch_norm_and_a_whole_net_are_exact_as_well(group):
    field_type = features(group)
    net = nn.Sequential(
        sf.nn.Conv(image(group), field_type, kernel_size=3),
        sf.nn.BatchNorm(field_type),
        sf.nn.NormReLU(field_type, bias=-0.1),
        sf.nn.AvgPool(field_type, kernel_size=2),
        sf.nn.Gated(field_type),
    )
    net.in_type, net.out_type = image(group), field_type
    for size in SIZES:
        assert worst_error(net.train(), size) < 1e-10


class Foreign(nn.Module):
    """A layer of torch, applied to channels that it does not understand."""

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
    return Foreign(convolution(features(group).channels, features(group).channels, 3, padding=1), features(group))


def plain_relu(group):
    return Foreign(nn.ReLU(), features(group))


def plain_batch_norm(group):
    norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[group.dim](features(group).channels)
    return Foreign(randomized(norm), features(group))


@pytest.mark.parametrize("make", [plain_conv, plain_relu, plain_batch_norm])
def test_torchs_own_layers_fail_the_same_check(group, make):
    layer = make(group).eval()
    for size in SIZES:
        assert worst_error(layer, size) > 1e-2
    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(layer, size=5)


def test_torchs_pooling_is_off_center_on_an_odd_grid_and_fails(group):
    pool = Foreign(CenteredAveragePool(), image(group))
    assert worst_error(pool, 6) < 1e-10
    assert worst_error(pool, 7) > 1e-2


def test_torchs_strided_convolution_is_off_center_on_an_even_grid_and_fails(group):
    """The peers' classic trap, with a kernel that is itself steerable."""
    inner = sf.nn.Conv(image(group), image(group), kernel_size=3)
    convolution = {2: F.conv2d, 3: F.conv3d}[group.dim]
    trap = Foreign(lambda x: convolution(x, inner.kernel().to(x), stride=2, padding=1), image(group))
    assert worst_error(trap, 7) < 1e-6  # float32 weights, but centered
    assert worst_error(trap, 6) > 1e-2


@pytest.mark.parametrize("make", POINTWISE)
@pytest.mark.parametrize("size", [(), 3], ids=["without-space", "with-space"])
def test_pointwise_layers_commute_with_every_rotation(group, make, size, float64):
    layer = randomized(make(group)).eval()
    x = layer.in_type.randn(3, size)
    y = layer(x)
    for _ in range(3):
        R = group.random_rotation()
        before, after = layer.in_type.matrix(R), layer.out_type.matrix(R)
        found = layer(torch.einsum("ij,bj...->bi...", before, x))
        assert_close(found, torch.einsum("ij,bj...->bi...", after, y), rtol=0, atol=1e-10)


STRIDES = [
    (stride, kernel, padding)
    for stride, kernel, padding in product((1, 2, 3), (1, 2, 3, 4, 5), ("same", 0, 1))
    if padding != "same" or stride > 1 or kernel % 2  # an even kernel cannot keep the size
]


@pytest.mark.parametrize(("stride", "kernel", "padding"), STRIDES)
def test_strided_convolutions_are_exact_on_every_grid_they_take(group, stride, kernel, padding):
    layer = sf.nn.Conv(
        FieldType.image(group, 1),
        FieldType(group, (1, 1)),
        kernel_size=kernel,
        stride=stride,
        padding=padding,
        tolerance=1.0,
    )
    candidates = [5, 6, 7, 8, (5, 6, 7)] if group is SO2 else [5, 6]
    for x in list(inputs_it_takes(layer, sizes=candidates)):
        assert worst_error(layer, x.shape[2:]) < 1e-10
