"""Many images, each turned by its own rotation."""

import math

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO2, SO3, FieldType
from steerformer.data.turn import plane_rotations, sample, turn, turn_whole
from steerformer.fields import permute_axes, voxel_coordinates


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_each_sample_turns_as_a_field_does(group, mode, float64):
    kind = FieldType.image(group, 2)
    x = kind.randn(5, size=9)
    rotations = [group.random_rotation() for _ in range(5)]
    expected = torch.cat([kind.rotate(one[None], R, mode=mode) for one, R in zip(x, rotations, strict=True)])
    assert_close(turn(x, torch.stack(rotations), mode=mode), expected, rtol=0, atol=1e-12)


def test_quarter_turns_move_pixels_onto_pixels(float64):
    x = FieldType.image(SO2, 1).randn(4, size=6)
    turned = turn(x, plane_rotations(torch.arange(4) * math.pi / 2))
    for number in range(4):
        assert_close(turned[number], FieldType.image(SO2, 1).rotate(x, SO2.grid_rotations()[0])[number].rot90(
            number, (1, 2)
        ), rtol=0, atol=1e-9)  # fmt: skip


def test_rotations_of_the_plane_are_those_of_the_group(float64):
    angles = torch.rand(7) * 10
    expected = torch.stack([SO2.rotation(float(angle)) for angle in angles])
    assert_close(plane_rotations(angles), expected, rtol=0, atol=1e-15)


def test_a_wrong_rotation_would_be_seen(float64):
    x = FieldType.image(SO3, 1).randn(1, size=7)
    R = SO3.random_rotation()
    assert (turn(x, R[None]) - FieldType.image(SO3, 1).rotate(x, R.T)).abs().max() > 0.1


def test_a_grid_that_grows_holds_all_that_is_turned(group, float64):
    shape = (5, 8, 6)[: group.dim]
    x = torch.randn(1, 2, *shape)
    for R in group.grid_rotations():
        turned = turn_whole(x, R, (1.0,) * group.dim, mode="bilinear")
        expected = permute_axes(x, R)
        assert turned.shape == expected.shape
        assert_close(turned, expected, rtol=0, atol=1e-9)
    R = group.random_rotation()
    corners = torch.ones(1, 1, *shape)
    kept = turn_whole(corners, R, (1.0,) * group.dim, mode="nearest").sum()
    assert float(kept) == pytest.approx(corners.numel(), rel=0.1)


def test_turning_is_by_millimetres_where_voxels_are_not_cubes(group, float64):
    spacing, shape = (1.0, 2.0, 0.5)[: group.dim], (9, 8, 14)[: group.dim]
    R = group.random_rotation()
    x = voxel_coordinates(shape, spacing).movedim(-1, 0)[None]  # every voxel tells its place, exactly when interpolated
    inside = turn_whole(torch.ones(1, 1, *shape), R, spacing, mode="bilinear")[0, 0] > 1 - 1e-9
    turned = turn_whole(x, R, spacing, mode="bilinear")[0]
    places = voxel_coordinates(turned.shape[1:], spacing)
    assert inside.sum() > 0.3 * x[0, 0].numel()
    assert_close(turned.movedim(0, -1)[inside], (places @ R)[inside], rtol=0, atol=1e-9)


def test_a_single_slice_can_be_sampled(float64):
    x = torch.arange(5.0)[None, None, None]
    places = torch.tensor([[[[0.0, -2.0], [0.0, 0.5], [0.5, 1.0], [1.0, 0.0], [0.0, 3.0]]]])
    assert_close(sample(x, places), torch.tensor([[[[0.0, 2.5, 1.5, 0.0, 0.0]]]]))
