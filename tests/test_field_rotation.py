"""Turning fields: exact on the grid's own rotations, as good as interpolation elsewhere."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.fields import voxel_coordinates

pytestmark = pytest.mark.usefixtures("float64")
GRIDS = {2: [(5, 5), (4, 4), (3, 6), (1, 4)], 3: [(3, 3, 3), (2, 2, 2), (2, 3, 4)]}


def types(group):
    return [FieldType(group, (2, 1, 0, 2)), FieldType(group, (0, 2)), FieldType.image(group, 2)]


def test_the_matrix_is_an_orthogonal_representation(group):
    for field_type in types(group):
        first, second = group.random_rotation(), group.random_rotation()
        rho = field_type.matrix(first)
        assert_close(rho @ rho.mT, torch.eye(field_type.channels), rtol=0, atol=1e-12)
        assert_close(rho @ field_type.matrix(second), field_type.matrix(first @ second), rtol=0, atol=1e-12)
        assert_close(rho, torch.from_numpy(oracles.channel_matrix(field_type, first.numpy())), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("group", "grid"), [(group, grid) for group in (SO2, SO3) for grid in GRIDS[group.dim]], ids=str
)
def test_a_grid_rotation_is_the_definition_voxel_by_voxel(group, grid):
    for field_type in types(group):
        x = field_type.randn(2, grid)
        for R in group.grid_rotations():
            assert_close(field_type.rotate(x, R), oracles.rotate(field_type, x, R), rtol=0, atol=1e-12)


def test_grid_rotations_compose_and_undo_each_other(group):
    field_type = FieldType(group, (1, 2, 1))
    x = field_type.randn(1, (2, 3, 4)[: group.dim])
    for first in group.grid_rotations():
        back = field_type.rotate(field_type.rotate(x, first), first.mT)
        assert_close(back, x, rtol=0, atol=1e-12)
        for second in group.grid_rotations()[:5]:
            two_steps = field_type.rotate(field_type.rotate(x, first), second)
            assert_close(two_steps, field_type.rotate(x, second @ first), rtol=0, atol=1e-12)


def test_a_rotation_that_is_only_nearly_of_the_grid_is_taken_as_one(group):
    """cos(pi / 2) is 6e-17, and in float32 4e-8: neither may start an interpolation."""
    field_type = FieldType(group, (1, 1))
    axis = () if group is SO2 else ((0.0, 0.0, 1.0),)
    quarter = group.rotation(math.pi / 2, *axis)
    x = field_type.randn(1, (3, 6, 2)[: group.dim])
    assert torch.equal(field_type.rotate(x, quarter), field_type.rotate(x, quarter.round()))
    assert torch.equal(field_type.rotate(x, quarter.float()), field_type.rotate(x, quarter.round()))


def test_float32_fields_stay_float32_and_quarter_turns_of_images_lose_nothing(group):
    image = FieldType.image(group, 1)
    x = image.randn(1, 4, dtype=torch.float32)
    for R in group.grid_rotations():
        turned = image.rotate(x, R)
        assert turned.dtype == torch.float32
        assert torch.equal(turned, oracles.rotate(image, x.double(), R).float())


def test_without_space_only_channels_turn(group):
    for field_type in types(group):
        x, R = field_type.randn(3), group.random_rotation()
        assert_close(field_type.rotate(x, R), x @ field_type.matrix(R).mT, rtol=0, atol=1e-12)


def interpolation_error(field_type, sigma, size, mode="bilinear"):
    """Relative distance between the turned grid and the turned formula, where the grid still knows the formula."""
    axis = () if field_type.group is SO2 else ((1.0, 2.0, 3.0),)
    R = field_type.group.rotation(0.3, *axis)
    centers = sigma * torch.randn(4, field_type.group.dim).numpy()
    amplitudes = torch.randn(4, field_type.channels).numpy()
    points = voxel_coordinates([size] * field_type.group.dim).numpy()

    def scene(where, what):
        blobs = (np.multiply.outer(a, oracles.blob(c, sigma, points)) for a, c in zip(what, where, strict=True))
        return torch.from_numpy(sum(blobs))[None]

    turned = field_type.rotate(scene(centers, amplitudes), R, mode=mode)
    rho = oracles.channel_matrix(field_type, R.numpy())
    expected = scene(centers @ R.numpy().T, amplitudes @ rho.T)
    inside = torch.from_numpy(np.linalg.norm(points, axis=-1) <= (size - 1) / 2 - 1)
    return ((turned - expected)[..., inside].norm() / expected[..., inside].norm()).item()


def test_any_other_rotation_is_accurate_to_interpolation(group):
    """Linear interpolation errs by second differences: four times less when blobs grow twofold."""
    for field_type in (FieldType(group, (1, 1, 1)), FieldType.image(group, 1)):
        torch.manual_seed(1)
        small = interpolation_error(field_type, sigma=2.0, size=17)
        torch.manual_seed(1)
        large = interpolation_error(field_type, sigma=4.0, size=17)
        assert small < 0.1
        assert 3 < small / large < 6
        assert interpolation_error(field_type, sigma=4.0, size=17, mode="nearest") < 0.3


def test_what_comes_from_outside_the_grid_is_zero():
    image = FieldType.image(SO2, 1)
    turned = image.rotate(torch.ones(1, 1, 9, 9), SO2.rotation(math.pi / 4))
    assert turned[0, 0, 0, 0] == 0
    assert_close(turned[0, 0, 4, 4], torch.tensor(1.0))


def test_a_grid_one_voxel_wide_ends_there_too():
    """Turned by 45 degrees, the far end of the line looks 2.8 voxels beside it, where there is nothing."""
    image = FieldType.image(SO2, 1)
    turned = image.rotate(torch.ones(1, 1, 1, 9), SO2.rotation(math.pi / 4))
    assert turned[0, 0, 0, 0] == 0
    assert_close(turned[0, 0, 0, 4], torch.tensor(1.0))


def test_what_cannot_be_turned_is_refused_with_the_reason(group, unchecked):
    field_type = FieldType(group, (1, 1))
    x, eye = field_type.randn(1, 3), torch.eye(group.dim)
    reflection = eye.clone()
    reflection[0, 0] = -1
    for R, error, words in (
        (reflection, ValueError, "reflection"),
        (2 * eye, ValueError, "orthogonal"),
        (torch.eye(5), ValueError, f"{group.dim} x {group.dim} matrix"),
        (eye.int(), TypeError, "floating-point"),
    ):
        for action in (field_type.matrix, lambda R: field_type.rotate(x, R)):
            with pytest.raises(error, match=words):
                action(R)
    with pytest.raises(ValueError, match=rf"{group.dim} axes of space\), got"):
        field_type.rotate(x[..., 0], eye)
    with pytest.raises(ValueError, match="interpolates 'bilinear' or 'nearest', got 'cubic'"):
        field_type.rotate(x, group.random_rotation(), mode="cubic")
