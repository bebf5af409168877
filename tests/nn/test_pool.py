"""Average pooling: means over windows that are centered on grids of any size."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from nn.layers import gapped, in_space, worst_error
from steerformer import SO2, FieldType

pytestmark = pytest.mark.usefixtures("float64")
WINDOWS = [(1, 1), (1, 2), (2, 2), (3, 3), (3, 2), (2, 3), (4, 3), (3, 1), (2, 1), (2, 4)]  # width, stride


def image(group):
    return FieldType.image(group, 1)


def centers(size, outputs, stride):
    """Positions of the samples, in voxels from the first."""
    return (size - 1) / 2 + stride * (np.arange(outputs) - (outputs - 1) / 2)


def window_matrix(size, width, stride):
    """Means over windows around centered samples, linearly interpolated between voxels."""
    rows = np.zeros(((size - width) // stride + 1, size))
    for row, center in zip(rows, centers(size, len(rows), stride), strict=True):
        for tap in range(width):
            place = center + tap - (width - 1) / 2
            low = math.floor(place)
            row[low] += (1 - (place - low)) / width
            if place > low:
                row[low + 1] += (place - low) / width
    return rows


def gaussian_matrix(size, stride, blur):
    """Gaussians of standard deviation ``blur`` strides, normalized on an infinite grid."""
    offsets = np.arange(-20 * stride, size + 20 * stride) - centers(size, size // stride, stride)[:, None]
    rows = np.exp(-(offsets**2) / (2 * (blur * stride) ** 2))
    return (rows / rows.sum(axis=1, keepdims=True))[:, 20 * stride : -20 * stride]


def along_all_axes(x, matrices):
    for axis, matrix in enumerate(matrices, start=2):
        x = torch.movedim(torch.tensordot(x, torch.from_numpy(matrix), dims=([axis], [1])), -1, axis)
    return x


def test_pool_is_the_mean_over_centered_windows(group):
    for width, stride in WINDOWS:
        pool = sf.nn.AvgPool(gapped(group), kernel_size=width, stride=stride)
        for size in ((5, 6, 7), (8, 4, 5), (4, 9, 6)):
            x = pool.in_type.randn(2, in_space(group, size))
            expected = along_all_axes(x, [window_matrix(n, width, stride) for n in x.shape[2:]])
            case = f"{width}, {stride}, {size}"
            assert_close(pool(x), expected, rtol=0, atol=1e-12, msg=lambda text, case=case: f"{case}: {text}")


def test_pool_matches_torch_where_windows_fill_the_grid(group):
    plain = {2: F.avg_pool2d, 3: F.avg_pool3d}[group.dim]
    for width, size in ((2, 6), (3, 6), (2, (4, 6, 8))):
        x = gapped(group).randn(2, in_space(group, size))
        assert_close(sf.nn.AvgPool(gapped(group), kernel_size=width)(x), plain(x, width), rtol=0, atol=1e-14)


def test_window_of_2_on_odd_grid_has_weights_1_2_1(group):
    pool = sf.nn.AvgPool(image(group), kernel_size=2)
    x = torch.zeros(1, 1, *in_space(group, 5))
    x[(0, 0, *(2,) * group.dim)] = 1
    one = torch.tensor([0.25, 0.25])  # two windows share the central voxel
    expected = one
    for _ in range(group.dim - 1):
        expected = expected[..., None] * one
    assert_close(pool(x)[0, 0], expected)


def test_pool_of_ramp_is_the_ramp_at_the_samples(group):
    for width, stride in WINDOWS:
        pool = sf.nn.AvgPool(image(group), kernel_size=width, stride=stride)
        for size in (5, 6, 8, 9):
            ramp = (torch.arange(size) - (size - 1) / 2).view(-1, *[1] * (group.dim - 1)).expand(*in_space(group, size))
            y = pool(ramp[None, None].contiguous())[0, 0]
            outputs = y.shape[0]
            assert outputs == (size - width) // stride + 1, (width, stride, size)
            expected = torch.from_numpy(centers(size, outputs, stride)) - (size - 1) / 2
            assert_close(y, expected.view(-1, *[1] * (group.dim - 1)).expand_as(y), rtol=0, atol=1e-12)


def test_pool_is_exact_on_every_grid(group):
    for width, stride in WINDOWS:
        pool = sf.nn.AvgPool(FieldType(group, "1x1"), kernel_size=width, stride=stride).eval()
        for size in (4, 5, 6, 7, 8, (4, 5, 7)) if group is SO2 else (4, 5):
            assert worst_error(pool, size) < 1e-10, (width, stride, size)


def test_antialiased_pool_is_exact_on_every_grid(group):
    for stride, blur in itertools.product((1, 2, 3, 4), (0.45, 0.7)):
        pool = sf.nn.AvgPool(FieldType(group, "1x1"), kernel_size=stride, antialiased=True, blur=blur).eval()
        for size in (4, 5, 6, 7, 8, (4, 5, 7)) if group is SO2 else (4, 5):
            assert worst_error(pool, size) < 1e-10, (stride, blur, size)


def test_axes_may_have_different_options(group):
    pool = sf.nn.AvgPool(image(group), kernel_size=(2, 3, 1)[: group.dim], stride=(3, 2, 1)[: group.dim])
    x = pool.in_type.randn(1, (8, 6, 4)[: group.dim])
    matrices = [window_matrix(8, 2, 3), window_matrix(6, 3, 2), window_matrix(4, 1, 1)]
    assert_close(pool(x), along_all_axes(x, matrices[: group.dim]), rtol=0, atol=1e-12)


def test_antialiased_windows_are_gaussians(group):
    """Truncated at three standard deviations, which omits less than 1 %."""
    for stride, blur, size in itertools.product((2, 3, 4), (0.45, 0.7), ((8, 9, 6), (7, 12, 5))):
        pool = sf.nn.AvgPool(gapped(group), kernel_size=stride, antialiased=True, blur=blur)
        x = pool.in_type.randn(2, in_space(group, size))
        expected = along_all_axes(x, [gaussian_matrix(n, stride, blur) for n in x.shape[2:]])
        assert_close(pool(x), expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("stride", [2, 3])
def test_antialiased_windows_keep_constants_and_ramps_away_from_edges(group, stride):
    pool = sf.nn.AvgPool(image(group), kernel_size=stride, antialiased=True)
    for size in (16, 17):
        ramp = (torch.arange(size) - (size - 1) / 2).view(-1, *[1] * (group.dim - 1)).expand(*in_space(group, size))
        inner = (slice(2, -2),) * group.dim
        constant = pool(torch.ones(1, 1, *in_space(group, size)))[0, 0][inner]
        assert_close(constant, torch.ones_like(constant), rtol=0, atol=1e-12)
        y = pool(ramp[None, None].contiguous())[0, 0]
        expected = torch.from_numpy(centers(size, size // stride, stride)) - (size - 1) / 2
        expected = expected.view(-1, *[1] * (group.dim - 1)).expand_as(y)
        assert_close(y[inner], expected[inner], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_antialiased_windows_suppress_aliasing_frequencies(group, stride):
    """Waves along one axis beyond the coarse grid's Nyquist frequency, at two phases."""
    size = 24 * stride if group is SO2 else 8 * stride
    place = torch.arange(size)
    passed = {}
    for antialiased in (False, True):
        pool = sf.nn.AvgPool(image(group), kernel_size=stride, antialiased=antialiased)
        energies = []
        for omega in np.linspace(1.1 * math.pi / stride, math.pi, 8):
            for phase in (0.0, math.pi / 2):
                wave = torch.cos(omega * place + phase).view(-1, *[1] * (group.dim - 1))
                y = pool(wave.expand(*in_space(group, size))[None, None].contiguous())
                energies.append(y[(..., *(slice(2, -2),) * group.dim)].square().mean().item())
        passed[antialiased] = np.mean(energies)
    assert passed[True] < 0.35 * passed[False]
    assert passed[True] < 0.02


def test_wider_blur_suppresses_the_coarse_nyquist_frequency(group):
    """At the coarse grid's Nyquist frequency a Gaussian passes exp(-(pi blur)^2 / 2)."""
    size = 32
    wave = torch.cos(math.pi / 2 * (torch.arange(size) - (size - 1) / 2 + 1)).view(-1, *[1] * (group.dim - 1))
    x = wave.expand(*in_space(group, size if group is SO2 else (size, 12, 12)))[None, None].contiguous()
    for blur in (0.45, 0.7):
        y = sf.nn.AvgPool(image(group), kernel_size=2, antialiased=True, blur=blur)(x)
        inner = y[(..., slice(4, -4), *(slice(2, -2),) * (group.dim - 1))]
        assert inner.abs().max().item() == pytest.approx(math.exp(-((math.pi * blur) ** 2) / 2), rel=0.05)


def test_antialiased_stride_1_is_identity(group):
    pool = sf.nn.AvgPool(image(group), kernel_size=1, antialiased=True)
    x = pool.in_type.randn(1, 5)
    assert torch.equal(pool(x), x)


def test_large_grids_are_multiplied_in_tiles():
    """Values and gradients, where matrices are cut into several tiles; the cut Gaussians omit less than 1 %."""
    for stride, size in itertools.product((2, 3), (141, 70)):
        pool = sf.nn.AvgPool(image(SO2), kernel_size=stride, antialiased=True)
        x = pool.in_type.randn(2, (size, 9)).requires_grad_()
        y = pool(x)
        assert_close(y, along_all_axes(x, [gaussian_matrix(n, stride, 0.45) for n in (size, 9)]), rtol=0, atol=0.03)
        grad = torch.randn_like(y)
        (into_x,) = torch.autograd.grad(y, x, grad)
        other = torch.randn_like(x)
        assert_close((into_x * other).sum(), (grad * pool(other)).sum())  # the transposed map
