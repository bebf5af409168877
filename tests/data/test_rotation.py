"""Rotation of batches, scans and labels."""

import math

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO2, SO3, FieldType
from steerformer.data.rotation import plane_rotations, rotate_batch, rotate_labels, rotate_scan
from steerformer.fields import permute_axes, sample_at, voxel_coordinates


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_each_sample_is_rotated_as_a_field(group, mode, float64):
    kind = FieldType.image(group, 2)
    x = kind.randn(5, size=9)
    rotations = [group.random_rotation() for _ in range(5)]
    expected = torch.cat([kind.rotate(one[None], R, mode=mode) for one, R in zip(x, rotations, strict=True)])
    assert_close(rotate_batch(x, torch.stack(rotations), mode=mode), expected, rtol=0, atol=1e-12)


def test_rotations_by_90_degrees_permute_pixels(float64):
    x = FieldType.image(SO2, 1).randn(4, size=6)
    rotated = rotate_batch(x, plane_rotations(torch.arange(4) * math.pi / 2))
    upright = FieldType.image(SO2, 1).rotate(x, SO2.grid_rotations()[0])
    for number in range(4):
        assert_close(rotated[number], upright[number].rot90(number, (1, 2)), rtol=0, atol=1e-9)


def test_plane_rotations_are_those_of_so2(float64):
    angles = torch.rand(7) * 10
    expected = torch.stack([SO2.rotation(float(angle)) for angle in angles])
    assert_close(plane_rotations(angles), expected, rtol=0, atol=1e-15)


def test_inverse_rotation_is_detected(float64):
    """A negative control."""
    x = FieldType.image(SO3, 1).randn(1, size=7)
    R = SO3.random_rotation()
    assert (rotate_batch(x, R[None]) - FieldType.image(SO3, 1).rotate(x, R.T)).abs().max() > 0.1


def test_grid_grows_to_hold_the_rotated_scan(group, float64):
    shape = (5, 8, 6)[: group.dim]
    x, labels = torch.randn(2, *shape), torch.randint(4, shape)
    for R in group.grid_rotations():
        expected = permute_axes(x[None], R)[0]
        assert_close(rotate_scan(x, R, (1.0,) * group.dim), expected, rtol=0, atol=1e-6)
        assert torch.equal(rotate_labels(labels, R, (1.0,) * group.dim), permute_axes(labels[None, None], R)[0, 0])
    R = group.random_rotation()
    for kept in (
        rotate_scan(torch.ones(1, *shape), R, (1.0,) * group.dim),
        rotate_labels(torch.ones(shape).long(), R, (1.0,) * group.dim),
    ):
        assert float(kept.sum()) == pytest.approx(math.prod(shape), rel=0.1)


def test_rotation_is_in_millimeters_for_anisotropic_voxels(group, float64):
    spacing, shape = (1.0, 2.0, 0.5)[: group.dim], (9, 8, 14)[: group.dim]
    R = group.random_rotation()
    x = voxel_coordinates(shape, spacing).movedim(-1, 0)  # coordinates are interpolated exactly
    inside = rotate_scan(torch.ones(1, *shape), R, spacing)[0] > 0
    rotated = rotate_scan(x, R, spacing)
    places = voxel_coordinates(rotated.shape[1:], spacing)
    assert inside.sum() > 0.3 * x[0].numel()
    assert_close(rotated.movedim(0, -1)[inside], (places @ R)[inside], rtol=0, atol=1e-6)


def test_splines_keep_detail_and_labels_smooth_outlines(group, float64):
    """Oracle: a wave of five voxels, and a ball of label 2 in label 1, at the rotated coordinates."""
    shape = (30, 33, 31)[: group.dim]
    wave = torch.randn(group.dim)
    wave *= 2 * math.pi / 5 / wave.norm()

    def scene(places):
        return (places @ wave).cos(), 1 + (places.square().sum(-1) < 100).long()

    R, spacing = group.random_rotation(), (1.0,) * group.dim
    x, labels = scene(voxel_coordinates(shape).double())
    rotated, found = rotate_scan(x[None], R, spacing)[0], rotate_labels(labels, R, spacing)
    places = voxel_coordinates(rotated.shape).double() @ R
    expected, outline = scene(places)
    middle = places.norm(dim=-1) < 12
    error = (rotated - expected)[middle].square().mean().sqrt()
    linear = sample_at(x[None, None], places[None].to(x))[0, 0]
    assert error < 0.02 < 0.06 < (linear - expected)[middle].square().mean().sqrt()
    nearest = sample_at(labels[None, None].to(x), places[None].to(x), mode="nearest")[0, 0].long()
    wrong, ragged = ((each != outline)[middle].sum() for each in (found, nearest))
    assert wrong < ragged and set(found.unique().tolist()) == {0, 1, 2}


def test_single_slice_can_be_sampled(float64):
    x = torch.arange(5.0)[None, None, None]
    places = torch.tensor([[[[0.0, -2.0], [0.0, 0.5], [0.5, 1.0], [1.0, 0.0], [0.0, 3.0]]]])
    assert_close(sample_at(x, places), torch.tensor([[[[0.0, 2.5, 1.5, 0.0, 0.0]]]]))
