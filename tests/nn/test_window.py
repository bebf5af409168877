"""Radial windows: their values, and what they do to sums over a grid."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

import oracles
import steerformer as sf
from steerformer import SO2
from steerformer.nn.window import radial_window


@pytest.mark.parametrize("space", [(7, 7), (8, 8), (5, 9), (1, 1), (5, 5, 5), (4, 6, 5)], ids=str)
@pytest.mark.parametrize("width", [0.8, 1.5, 9.0])
def test_window_matches_its_definition(space, width):
    expected = oracles.window(space, width)
    found = radial_window(space, width, torch.zeros((), dtype=torch.float64))
    assert_close(found, torch.tensor(list(expected.values()), dtype=torch.float64).view(space))


def test_layer_multiplies_by_the_window(group, float64):
    features = sf.FieldType(group, (3, 2))
    layer, x = sf.nn.RadialWindow(features, width=1.5), features.randn(2, 6)
    assert_close(layer(x), x * radial_window((6,) * group.dim, 1.5, x))
    sf.testing.assert_equivariant(layer, size=6)


@pytest.mark.parametrize("width", [0.0, -1.5, math.nan, math.inf])
def test_width_is_positive(width):
    features = sf.FieldType(SO2, (2, 2))
    with pytest.raises(ValueError, match="width of a window is a positive number of voxels"):
        sf.nn.RadialWindow(features, width=width)
    with pytest.raises(ValueError, match="width of a window is a positive number of voxels"):
        sf.nn.Attention(features, num_heads=1, key_window=width)


def test_windows_that_cannot_be_are_rejected():
    features = sf.FieldType(SO2, (2, 2))
    with pytest.raises(ValueError, match="leaves no voxel of a grid of"):
        sf.nn.RadialWindow(features, width=0.3)(features.randn(1, 2))
    with pytest.raises(ValueError, match="key_window is for isotropic voxels"):
        sf.nn.Attention(features, num_heads=1, key_window=2.0, spacing=(1.0, 3.0))


def test_first_call_under_fake_tensors_leaves_the_cache_alone():
    features = sf.FieldType(SO2, (2, 2))
    layer = sf.nn.RadialWindow(features, width=1.7)
    with FakeTensorMode():
        assert layer(torch.zeros(1, features.channels, 11, 11)).shape == (1, features.channels, 11, 11)
    assert torch.isfinite(layer(features.randn(1, 11))).all()


def sums_of_blobs(width, degree, angle):
    """Sum over the grid of smooth blobs times a harmonic of this degree, the blobs rotated by an angle."""
    n, generator = 9, torch.Generator().manual_seed(0)
    axis = torch.arange(n, dtype=torch.float64) - (n - 1) / 2
    x, y = torch.meshgrid(axis, axis, indexing="ij")
    weights = 1.0 if width is None else radial_window((n, n), width, x)
    harmonic = torch.polar(torch.ones_like(x), degree * torch.atan2(y, x)) * (x**2 + y**2)
    found = []
    for radius, phase in torch.rand(40, 2, generator=generator, dtype=torch.float64).tolist():
        direction = 2 * math.pi * phase + angle
        center_x, center_y = 5 * radius * math.cos(direction), 5 * radius * math.sin(direction)
        blob = torch.exp(-((x - center_x) ** 2 + (y - center_y) ** 2) / 2)
        found.append((weights * blob * harmonic).sum())
    return torch.stack(found)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_sums_behind_a_window_rotate_with_their_content(degree):
    errors = []
    for width in (2.5, None):
        upright, rotated = (sums_of_blobs(width, degree, angle) for angle in (0.0, 0.6))
        expected = upright * torch.polar(torch.ones(()), torch.tensor(0.6 * degree))
        errors.append(((rotated - expected).norm() / expected.norm()).item())
    assert errors[0] < 0.03 < 0.1 < errors[1]  # without a window, blobs that reach over the edge are cut off
