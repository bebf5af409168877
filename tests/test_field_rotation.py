"""FieldType.rotate: exact for grid rotations, accurate to interpolation for others."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.fields import sample_at, voxel_coordinates

pytestmark = pytest.mark.usefixtures("float64")
GRIDS = {2: [(5, 5), (4, 4), (3, 6), (1, 4)], 3: [(3, 3, 3), (2, 2, 2), (2, 3, 4)]}


def types(group):
    real = [FieldType(group, (2, 1, 0, 2), real=True)] if group is SO3 else []
    return [FieldType(group, (2, 1, 0, 2)), FieldType(group, (0, 2)), FieldType.image(group, 2), *real]


def test_matrix_is_an_orthogonal_representation(group):
    for field_type in types(group):
        first, second = group.random_rotation(), group.random_rotation()
        rho = field_type.matrix(first)
        assert_close(rho @ rho.mT, torch.eye(field_type.channels), rtol=0, atol=1e-12)
        assert_close(rho @ field_type.matrix(second), field_type.matrix(first @ second), rtol=0, atol=1e-12)
        assert_close(rho, torch.from_numpy(oracles.channel_matrix(field_type, first.numpy())), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("group", "grid"), [(group, grid) for group in (SO2, SO3) for grid in GRIDS[group.dim]], ids=str
)
def test_grid_rotation_matches_definition(group, grid):
    for field_type in types(group):
        x = field_type.randn(2, grid)
        for R in group.grid_rotations():
            assert_close(field_type.rotate(x, R), oracles.rotate(field_type, x, R), rtol=0, atol=1e-12)


def test_grid_rotations_compose_and_invert(group, unchecked):
    field_type = FieldType(group, (1, 2, 1))
    x = field_type.randn(1, (2, 3, 4)[: group.dim])
    for first in group.grid_rotations():
        back = field_type.rotate(field_type.rotate(x, first), first.mT)
        assert_close(back, x, rtol=0, atol=1e-12)
        for second in group.grid_rotations()[1:4]:
            two_steps = field_type.rotate(field_type.rotate(x, first), second)
            assert_close(two_steps, field_type.rotate(x, second @ first), rtol=0, atol=1e-12)


def test_nearly_exact_grid_rotation_is_exact(group):
    """cos(pi / 2) is 6e-17, and 4e-8 in float32: neither may trigger interpolation."""
    field_type = FieldType(group, (1, 1))
    axis = () if group is SO2 else ((0.0, 0.0, 1.0),)
    by_90_degrees = group.rotation(math.pi / 2, *axis)
    x = field_type.randn(1, (3, 6, 2)[: group.dim])
    assert torch.equal(field_type.rotate(x, by_90_degrees), field_type.rotate(x, by_90_degrees.round()))
    assert torch.equal(field_type.rotate(x, by_90_degrees.float()), field_type.rotate(x, by_90_degrees.round()))


def test_grid_rotation_keeps_float32_and_is_lossless_for_images(group):
    image = FieldType.image(group, 1)
    x = image.randn(1, 4, dtype=torch.float32)
    for R in group.grid_rotations():
        rotated = image.rotate(x, R)
        assert rotated.dtype == torch.float32
        assert torch.equal(rotated, oracles.rotate(image, x.double(), R).float())


def test_without_space_only_channels_rotate(group):
    for field_type in types(group):
        x, R = field_type.randn(3), group.random_rotation()
        assert_close(field_type.rotate(x, R), x @ field_type.matrix(R).mT, rtol=0, atol=1e-12)


def interpolation_error(field_type, sigma, size, mode="bilinear"):
    """Relative distance between the rotated grid and the rotated formula, at voxels whose sources lie in the grid."""
    axis = () if field_type.group is SO2 else ((1.0, 2.0, 3.0),)
    R = field_type.group.rotation(0.3, *axis)
    centers = sigma * torch.randn(4, field_type.group.dim).numpy()
    amplitudes = torch.randn(4, field_type.channels).numpy()
    points = voxel_coordinates([size] * field_type.group.dim).numpy()

    def scene(where, what):
        blobs = (np.multiply.outer(a, oracles.blob(c, sigma, points)) for a, c in zip(what, where, strict=True))
        return torch.from_numpy(sum(blobs))[None]

    rotated = field_type.rotate(scene(centers, amplitudes), R, mode=mode)
    rho = oracles.channel_matrix(field_type, R.numpy())
    expected = scene(centers @ R.numpy().T, amplitudes @ rho.T)
    inside = torch.from_numpy(np.linalg.norm(points, axis=-1) <= (size - 1) / 2 - 1)
    return ((rotated - expected)[..., inside].norm() / expected[..., inside].norm()).item()


def test_other_rotations_are_accurate_to_interpolation(group):
    """Errors of linear interpolation are second differences: a quarter for blobs of twice the size."""
    for field_type in (FieldType(group, (1, 1, 1)), FieldType.image(group, 1)):
        torch.manual_seed(1)
        small = interpolation_error(field_type, sigma=2.0, size=17)
        torch.manual_seed(1)
        large = interpolation_error(field_type, sigma=4.0, size=17)
        assert small < 0.1
        assert 3 < small / large < 6
        assert interpolation_error(field_type, sigma=4.0, size=17, mode="nearest") < 0.3


def test_values_outside_grid_are_zero():
    image = FieldType.image(SO2, 1)
    rotated = image.rotate(torch.ones(1, 1, 9, 9), SO2.rotation(math.pi / 4))
    assert rotated[0, 0, 0, 0] == 0
    assert_close(rotated[0, 0, 4, 4], torch.tensor(1.0))


def test_values_outside_grid_of_width_1_are_zero():
    """After rotation by 45 degrees, the end of the line samples 2.8 voxels beside it, outside the grid."""
    image = FieldType.image(SO2, 1)
    rotated = image.rotate(torch.ones(1, 1, 1, 9), SO2.rotation(math.pi / 4))
    assert rotated[0, 0, 0, 0] == 0
    assert_close(rotated[0, 0, 0, 4], torch.tensor(1.0))


@pytest.mark.parametrize(("mode", "order"), [("bilinear", 1), ("nearest", 0)])
@pytest.mark.parametrize("size", [(5, 4), (1, 6), (4, 5, 3), (3, 4, 1), (1, 1, 1)], ids=str)
def test_sample_at_matches_scipy(size, mode, order):
    """In the grid, up to a voxel outside, where values decrease to zero (``grid-constant``), and farther outside."""
    x, limits = torch.randn(2, 3, *size), (torch.tensor(size) - 1) / 2
    target = (6, 20, 3)[: len(size)]
    points = (2 * torch.rand(2, *target, len(size)) - 1) * (limits + 2.5)
    found = sample_at(x, points, mode=mode)
    assert found.shape == (2, 3, *target)
    beyond = (points.abs() - limits).amax(dim=-1)
    inside, outside = beyond <= 0, beyond >= 1
    for n in range(2):
        places = (points[n] + limits).movedim(-1, 0).numpy()
        for channel, values in zip(x[n].numpy(), found[n], strict=True):
            near = map_coordinates(channel, places, order=order, mode="grid-constant")
            assert_close(values, torch.from_numpy(near), rtol=0, atol=1e-12)
            far = torch.from_numpy(map_coordinates(channel, places, order=order, mode="constant"))
            assert_close(values[inside[n] | outside[n]], far[inside[n] | outside[n]], rtol=0, atol=1e-12)
            assert not values[outside[n]].any()
    assert outside.any()


def test_sample_at_voxel_centers_returns_the_values(group):
    """Grids with and without single-voxel axes, in float64 and float32."""
    for size in ((3, 4, 2), (1, 4, 1)):
        x = FieldType.image(group, 2).randn(1, size[: group.dim])
        points = voxel_coordinates(x.shape[2:])[None]
        for mode in ("bilinear", "nearest"):
            assert_close(sample_at(x, points, mode=mode), x, rtol=0, atol=1e-12)
            single = sample_at(x.float(), points.float(), mode=mode)
            assert single.dtype == torch.float32
            assert_close(single, x.float(), rtol=0, atol=1e-5)


def test_invalid_rotation_or_field_raises(group, unchecked):
    field_type = FieldType(group, (1, 1))
    x, eye = field_type.randn(1, 3), torch.eye(group.dim)
    reflection = eye.clone()
    reflection[0, 0] = -1
    for R, error, message in (
        (reflection, ValueError, "reflection"),
        (2 * eye, ValueError, "orthogonal"),
        (torch.eye(5), ValueError, f"{group.dim} x {group.dim} matrix"),
        (eye.int(), TypeError, "floating-point"),
    ):
        for action in (field_type.matrix, lambda R: field_type.rotate(x, R)):
            with pytest.raises(error, match=message):
                action(R)
    with pytest.raises(ValueError, match=rf"{group.dim} spatial axes\), got"):
        field_type.rotate(x[..., 0], eye)
    with pytest.raises(ValueError, match="interpolates 'bilinear' or 'nearest', got 'cubic'"):
        field_type.rotate(x, group.random_rotation(), mode="cubic")
