"""Voxelization of point clouds, compared with histograms, double loops and permutations."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from steerformer import SO3, FieldType
from steerformer.data.voxelization import center_in_unit_sphere, voxelize

pytestmark = pytest.mark.usefixtures("float64")


def ball(batch=2, points=50):
    """Clouds in the unit sphere."""
    x = torch.randn(batch, points, 3)
    return x / x.norm(dim=2).amax(dim=1)[:, None, None]


@pytest.mark.parametrize("size", [7, 16])
@pytest.mark.parametrize("fill", [1.0, 0.8])
def test_binary_voxels_equal_a_histogram(size, fill):
    points = ball()
    edges = [np.linspace(-1 / fill, 1 / fill, size + 1)] * 3
    for cloud, x in zip(points, voxelize(points, size, fill=fill), strict=True):
        counts, _ = np.histogramdd(cloud.numpy(), bins=edges)
        assert_close(x[0].numpy(), (counts > 0).astype(float))


def test_gaussian_voxels_decay_with_distance():
    points, size, fill, width = ball(points=9), 6, 0.9, 0.7
    grid = voxelize(points, size, fill=fill, width=width)
    centers = torch.arange(size) + 0.5
    for cloud, x in zip(points, grid, strict=True):
        places = (cloud * fill + 1) * size / 2
        for i, j, k in np.ndindex(size, size, size):
            voxel = torch.stack([centers[i], centers[j], centers[k]])
            near = [p for p in places if all(abs(int(p[a]) - (i, j, k)[a]) <= 2 for a in range(3))]
            distances = [float((p - voxel).norm()) for p in near]
            expected = math.exp(-(min(distances) ** 2) / (2 * width**2)) if near else 0.0
            assert float(x[0, i, j, k]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("width", [None, 0.7])
@pytest.mark.parametrize("size", [8, 9])
def test_grid_rotations_permute_voxels(size, width):
    points, kind = ball(), FieldType.image(SO3, 1)
    x = voxelize(points, size, width=width)
    for R in SO3.grid_rotations():
        assert_close(voxelize(points @ R.T, size, width=width), kind.rotate(x, R), rtol=0, atol=1e-12)


def test_gaussian_voxels_are_more_equivariant_than_binary_ones():
    """Rotating the points and rotating the grid agree better on smooth voxels."""
    points, R, kind = ball(points=400), SO3.rotation(0.4, (1.0, 2.0, 3.0)), FieldType.image(SO3, 1)
    errors = []
    for width in (None, 0.9):
        exact = voxelize(points @ R.T, 24, fill=0.9, width=width)
        errors.append(
            float((exact - kind.rotate(voxelize(points, 24, fill=0.9, width=width), R)).norm() / exact.norm())
        )
    assert errors[1] < 0.5 * errors[0]


def test_rotated_clouds_stay_in_the_grid():
    points = ball(batch=1, points=200)
    total = {int(voxelize(points @ SO3.random_rotation().T, 100).sum()) for _ in range(5)}
    assert min(total) > 190  # lost or clipped points would be missing
    edge = torch.tensor([[[1.0, 0, 0], [-1.0, 0, 0]]])
    assert int(voxelize(edge, 5).sum()) == 2


def test_coordinates_follow_the_axes():
    x = voxelize(torch.tensor([[[-0.9, 0.0, 0.9]]]), 5)
    assert x[0, 0].nonzero().tolist() == [[0, 2, 4]]


def test_centered_clouds_fill_the_unit_sphere():
    moved = center_in_unit_sphere(ball() * torch.tensor([3.0, 1.0, 0.5]) + torch.tensor([5.0, -2.0, 7.0]))
    assert_close(moved.norm(dim=2).amax(dim=1), torch.ones(2))


def test_smallest_enclosing_sphere_is_found():
    """Oracle: spheres known by construction around uneven points."""
    center = torch.tensor([1.0, 2.0, 3.0])
    tetrahedron = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / math.sqrt(3)
    inside = 0.1 * torch.randn(100, 3).clamp(-2, 2) + torch.tensor([0.5, 0.5, 0.5])
    cloud = torch.cat([tetrahedron, inside])
    assert inside.norm(dim=1).max() < 1.3
    inside = inside / inside.norm(dim=1, keepdim=True).clamp_min(1.05)
    cloud = torch.cat([tetrahedron, inside])
    assert_close(center_in_unit_sphere(center + 4 * cloud[None])[0], cloud, rtol=0, atol=0.03)


def test_centering_is_equivariant():
    points, R = ball() + torch.tensor([1.0, 0.0, -3.0]), SO3.random_rotation()
    assert_close(center_in_unit_sphere(points @ R.T), center_in_unit_sphere(points) @ R.T, rtol=0, atol=1e-9)


def test_single_point_moves_to_the_center():
    assert center_in_unit_sphere(torch.ones(1, 4, 3)).abs().max() == 0
