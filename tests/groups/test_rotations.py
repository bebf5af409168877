"""Rotations of the grid, at random and about an axis; groups as values."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO2, SO3

pytestmark = pytest.mark.usefixtures("float64")


def test_grid_rotations_are_4_and_24_distinct_rotations_identity_first(group):
    rotations = group.grid_rotations()
    assert len(rotations) == {2: 4, 3: 24}[group.dim]
    assert torch.equal(rotations[0], torch.eye(group.dim))
    assert len({tuple(R.flatten().tolist()) for R in rotations}) == len(rotations)
    for R in rotations:
        group.require_rotation(R)
        assert torch.equal(R, R.round())


def test_grid_rotations_are_closed_under_products(group):
    members = {tuple(R.flatten().tolist()) for R in group.grid_rotations()}
    for first, second in itertools.product(group.grid_rotations(), repeat=2):
        assert tuple((first @ second).flatten().tolist()) in members


def test_random_rotations_are_uniform(group):
    """Under the Haar measure every entry has mean 0 and mean square 1/d, and a left turn changes no mean."""
    R = torch.stack([group.random_rotation() for _ in range(4000)])
    group.require_rotation(R)
    error = 5 / math.sqrt(len(R))  # five standard errors, entries being at most 1
    assert R.mean(0).abs().max() < error
    assert (R.square().mean(0) - 1 / group.dim).abs().max() < error
    turned = group.random_rotation() @ R
    assert (turned.square().mean(0) - 1 / group.dim).abs().max() < error
    angle_part = group.irrep(2, R).mean(0)  # no other invariant than constants: all irreps average to zero
    assert angle_part.abs().max() < error


def test_random_rotations_follow_their_generator(group):
    draw = lambda seed: group.random_rotation(torch.Generator().manual_seed(seed))  # noqa: E731
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 2.0, math.pi, -1.0])
def test_a_rotation_of_space_keeps_its_axis_and_has_the_right_trace(angle):
    for axis in torch.randn(20, 3).tolist():
        R = SO3.rotation(angle, tuple(axis))
        SO3.require_rotation(R)
        assert_close(R @ torch.tensor(axis), torch.tensor(axis), rtol=0, atol=1e-12)
        assert_close(R.trace().item(), 1 + 2 * math.cos(angle), rtol=0, atol=1e-12)


def test_rotations_are_right_handed():
    quarter = math.pi / 2
    assert_close(SO2.rotation(quarter) @ torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    x, y, z = torch.eye(3)
    for axis, start, end in ((x, y, z), (y, z, x), (z, x, y)):
        assert_close(SO3.rotation(quarter, tuple(5 * axis.tolist()[i] for i in range(3))) @ start, end)


def test_rotations_about_one_axis_add_their_angles(group):
    axis = () if group is SO2 else ((1.0, -2.0, 0.5),)
    product = group.rotation(0.4, *axis) @ group.rotation(0.9, *axis)
    assert_close(product, group.rotation(1.3, *axis), rtol=0, atol=1e-14)


def test_groups_stay_one_object_through_pickles_and_copies(group):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(group, protocol)) is group
    assert copy.copy(group) is group
    assert copy.deepcopy({"key": [group]})["key"][0] is group


@pytest.mark.parametrize("axis", [None, (1.0, 0.0), (0.0, 0.0, 0.0), (1.0, float("nan"), 0.0)])
def test_a_rotation_of_space_needs_an_axis(axis):
    with pytest.raises(ValueError, match="needs an axis of three numbers, finite and not all zero"):
        SO3.rotation(0.3, axis)


def test_a_rotation_of_the_plane_has_no_axis():
    with pytest.raises(ValueError, match="a rotation of the plane has no axis"):
        SO2.rotation(0.3, (0.0, 0.0, 1.0))


def test_what_is_no_rotation_is_refused_with_the_likely_cause(group, unchecked):
    eye = torch.eye(group.dim)
    reflection = eye.clone()
    reflection[0, 0] = -1
    cases = [
        (reflection, ValueError, "got a reflection"),
        (1.01 * eye, ValueError, r"orthogonal, but this matrix has max\|R R\^T - 1\| = 2.0e-02"),
        (torch.full_like(eye, float("nan")), ValueError, "orthogonal"),
        (torch.eye(group.dim + 1), ValueError, rf"{group.dim} x {group.dim} matrix, got shape"),
        (torch.zeros(group.dim), ValueError, rf"{group.dim} x {group.dim} matrix, got shape"),
        (torch.stack([eye, reflection]), ValueError, "got a reflection"),
        (eye.long(), TypeError, "real floating-point tensor, got a tensor of torch.int64"),
        (eye.to(torch.complex128), TypeError, "got a tensor of torch.complex128"),
        (eye.tolist(), TypeError, "got a list"),
    ]
    for value, error, words in cases:
        with pytest.raises(error, match=words):
            group.require_rotation(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rotation_rounded_to_its_dtype_is_still_one(group, dtype):
    for _ in range(100):
        group.require_rotation(group.random_rotation().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_the_identity_and_refuses_a_scaling(group, dtype):
    eye = torch.eye(group.dim, dtype=dtype)
    group.require_rotation(eye)
    with pytest.raises(ValueError, match="orthogonal"):
        group.require_rotation(1.2 * eye)


def test_irreps_refuse_what_is_no_rotation(group):
    reflection = torch.eye(group.dim, dtype=torch.float64)
    reflection[0, 0] = -1
    with pytest.raises(ValueError, match="reflection"):
        group.irrep(1, reflection)


def test_handed_out_grid_rotations_are_the_callers_own(group):
    group.grid_rotations()[1].mul_(2)
    group.require_rotation(group.grid_rotations()[1])
