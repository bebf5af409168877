"""Random deformations: each part alone against its definition, and the statistics of all together."""

import pytest
import torch
from torch.testing import assert_close

from steerformer.data import deformation
from steerformer.data.deformation import deform
from steerformer.fields import FieldType, voxel_coordinates


@pytest.fixture
def only(monkeypatch):
    """Leave one part of the deformation, switch off the others."""

    def switch(*kept):
        for name in {"_STRETCH", "_SHIFT", "_ELASTIC"} - set(kept):
            monkeypatch.setattr(deformation, name, 0.0)

    return switch


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def ramps(dim, size=15):
    """Coordinates along each axis as channels: interpolation is exact, and shows where values come from."""
    return voxel_coordinates((size,) * dim).float().movedim(-1, 0)


def interior(x, margin=5):
    return x[(slice(None), *(slice(margin, -margin) for _ in x.shape[1:]))]


def test_without_deformation_only_the_rotation_remains(group, only):
    only()
    R = group.grid_rotations()[-1]
    x = torch.rand(2, *(7,) * group.dim)
    expected = FieldType.image(group, 2).rotate(x[None], R)[0]
    assert_close(deform(x, R, random()), expected, rtol=0, atol=1e-5)


def test_shifts_move_all_voxels_alike(group, only):
    only("_SHIFT")
    x = ramps(group.dim)
    moved = interior(deform(x, torch.eye(group.dim), random()) - x).flatten(1)
    assert moved.std(dim=1).max() < 1e-4 < 0.05 < moved.abs().max() < 2


def test_linear_maps_keep_the_center_and_straight_lines(group, only):
    only("_STRETCH")
    x = ramps(group.dim)
    places = interior(deform(x, torch.eye(group.dim), random())).flatten(1)
    original = interior(x).flatten(1)
    A = torch.linalg.lstsq(original.T, places.T).solution.T
    assert_close(A @ original, places, rtol=0, atol=0.06)  # torch's cubic convolution is not exact on ramps
    assert 0.02 < (A - torch.eye(group.dim)).abs().max() < 0.6


def test_elastic_displacements_are_smooth_and_not_linear(group, only):
    only("_ELASTIC")
    x = ramps(group.dim, size=29)
    moved = deform(x, torch.eye(group.dim), random()) - x
    inside = interior(moved, 8)
    steps = torch.stack([inside.diff(dim=axis).abs().max() for axis in range(1, group.dim + 1)])
    assert steps.max() < 0.9  # nothing folds over
    design = torch.cat([interior(x, 8).flatten(1), torch.ones(1, inside[0].numel())])
    fit = torch.linalg.lstsq(design.T, inside.flatten(1).T).solution
    assert (inside.flatten(1).T - design.T @ fit).abs().max() > 0.1


def test_deformations_preserve_mass_on_average_and_depend_on_the_generator():
    x = torch.zeros(1, 28, 28)
    x[:, 8:20, 10:18] = 1
    many = torch.stack([deform(x, torch.eye(2), random(seed)) for seed in range(200)])
    masses = many.sum(dim=(1, 2, 3)) / x.sum()
    assert 0.9 < masses.mean() < 1.15 and masses.std() > 0.04
    assert_close(deform(x, torch.eye(2), random(3)), many[3], rtol=0, atol=0)
