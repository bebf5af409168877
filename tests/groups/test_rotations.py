"""Grid rotations, random rotations, rotations about an axis; groups as singletons."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from checks import raises, without_type_checks
from steerformer import SO2, SO3

pytestmark = pytest.mark.usefixtures("float64")


def test_grid_rotations_are_4_or_24_with_identity_first(group):
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
    """Under the Haar measure every entry has mean 0 and mean square 1/d, also after left multiplication."""
    with without_type_checks():
        R = torch.stack([group.random_rotation() for _ in range(4000)])
    group.require_rotation(R)
    error = 5 / math.sqrt(len(R))  # five standard errors for entries of at most 1
    assert R.mean(0).abs().max() < error
    assert (R.square().mean(0) - 1 / group.dim).abs().max() < error
    rotated = group.random_rotation() @ R
    assert (rotated.square().mean(0) - 1 / group.dim).abs().max() < error
    angle_part = group.irrep(2, R).mean(0)  # all irreps but the trivial one average to zero
    assert angle_part.abs().max() < error


def test_random_rotations_follow_their_generator(group):
    draw = lambda seed: group.random_rotation(torch.Generator().manual_seed(seed))  # noqa: E731
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_so3_rotation_keeps_axis_and_has_expected_trace():
    for angle, axis in itertools.product((0.0, 1e-9, 0.3, 2.0, math.pi, -1.0), torch.randn(10, 3).tolist()):
        R = SO3.rotation(angle, tuple(axis))
        SO3.require_rotation(R)
        assert_close(R @ torch.tensor(axis), torch.tensor(axis), rtol=0, atol=1e-12)
        assert_close(R.trace().item(), 1 + 2 * math.cos(angle), rtol=0, atol=1e-12)


def test_rotations_are_right_handed():
    right_angle = math.pi / 2
    assert_close(SO2.rotation(right_angle) @ torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    x, y, z = torch.eye(3)
    for axis, start, end in ((x, y, z), (y, z, x), (z, x, y)):
        assert_close(SO3.rotation(right_angle, tuple(5 * axis.tolist()[i] for i in range(3))) @ start, end)


def test_rotations_about_one_axis_add_angles(group):
    axis = () if group is SO2 else ((1.0, -2.0, 0.5),)
    product = group.rotation(0.4, *axis) @ group.rotation(0.9, *axis)
    assert_close(product, group.rotation(1.3, *axis), rtol=0, atol=1e-14)


def test_groups_are_singletons_after_pickle_and_copy(group):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(group, protocol)) is group
    assert copy.copy(group) is group
    assert copy.deepcopy({"key": [group]})["key"][0] is group


def test_so3_rotation_without_axis_raises():
    for axis in (None, (1.0, 0.0), (0.0, 0.0, 0.0), (1.0, float("nan"), 0.0)):
        with raises(axis, "needs an axis of three finite numbers, not all zero"):
            SO3.rotation(0.3, axis)


def test_so2_rotation_with_axis_raises():
    with pytest.raises(ValueError, match="a rotation of SO2 has no axis"):
        SO2.rotation(0.3, (0.0, 0.0, 1.0))


def test_invalid_rotation_raises_with_likely_cause(group, unchecked):
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
    for value, error, message in cases:
        with raises(value, message, error):
            group.require_rotation(value)


def test_rounded_rotation_is_accepted(group):
    for dtype in (torch.float32, torch.float64):
        for _ in range(100):
            group.require_rotation(group.random_rotation().to(dtype))


def test_half_precision_accepts_identity_and_rejects_scaling(group):
    for dtype in (torch.float16, torch.bfloat16):
        eye = torch.eye(group.dim, dtype=dtype)
        group.require_rotation(eye)
        with raises(dtype, "orthogonal"):
            group.require_rotation(1.2 * eye)


def test_irrep_of_reflection_raises(group):
    reflection = torch.eye(group.dim, dtype=torch.float64)
    reflection[0, 0] = -1
    with pytest.raises(ValueError, match="reflection"):
        group.irrep(1, reflection)


def test_grid_rotations_returns_fresh_tensors(group):
    group.grid_rotations()[1].mul_(2)
    group.require_rotation(group.grid_rotations()[1])
