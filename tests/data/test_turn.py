"""Many images, each turned by its own rotation."""

import math

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO2, SO3, FieldType
from steerformer.data.turn import plane_rotations, turn


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
