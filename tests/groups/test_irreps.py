"""Harmonics and irreps: the laws they promise, and what scipy, e3nn and the generators say of them."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3

CASES = [(SO2, degree) for degree in range(-16, 17)] + [(SO3, degree) for degree in range(9)]
pytestmark = pytest.mark.usefixtures("float64")


def exactly(actual, expected, tolerance=1e-10):
    assert_close(torch.as_tensor(actual), torch.as_tensor(expected), rtol=0, atol=tolerance, check_dtype=False)


def random_rotations(group, count=50):
    return torch.stack([group.random_rotation() for _ in range(count)])


def random_directions(group, count=50):
    return torch.nn.functional.normalize(torch.randn(count, group.dim), dim=-1)


def nearly_poles(group):
    """The axes, either way, and their neighbors at 1e-9: where angles are ill-conditioned."""
    axes = torch.cat([torch.eye(group.dim), -torch.eye(group.dim)])
    return torch.cat(
        [axes, torch.nn.functional.normalize(axes + 1e-9 * torch.randn(10, *axes.shape), dim=-1).flatten(0, 1)]
    )


def nearly_identities(group, angle):
    if group is SO2:
        return torch.stack([SO2.rotation(angle), SO2.rotation(-angle)])
    return torch.stack([SO3.rotation(angle, tuple(axis)) for axis in random_directions(SO3, 10).tolist()])


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_harmonics_turn_by_the_irrep(group, degree):
    R, u = random_rotations(group), random_directions(group)
    expected = torch.einsum("roi,ui->ruo", group.irrep(degree, R), group.harmonics(degree, u))
    exactly(group.harmonics(degree, torch.einsum("rij,uj->rui", R, u)), expected)


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_harmonics_turn_by_the_irrep_near_poles_and_on_the_grid(group, degree):
    R = torch.cat(
        [torch.stack(group.grid_rotations()), nearly_identities(group, 1e-9), nearly_identities(group, np.pi)]
    )
    u = nearly_poles(group)
    expected = torch.einsum("roi,ui->ruo", group.irrep(degree, R), group.harmonics(degree, u))
    exactly(group.harmonics(degree, torch.einsum("rij,uj->rui", R, u)), expected)


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_irrep_of_a_product_is_the_product_of_irreps(group, degree):
    others = torch.cat([nearly_identities(group, 1e-9), torch.stack(group.grid_rotations()), random_rotations(group)])
    first, second = random_rotations(group, len(others)), others
    exactly(group.irrep(degree, first @ second), group.irrep(degree, first) @ group.irrep(degree, second))


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_irreps_are_unitary_and_harmonics_have_unit_length(group, degree):
    rho = group.irrep(degree, torch.cat([random_rotations(group), nearly_identities(group, 1e-9)]))
    assert rho.shape[-2:] == (group.irrep_dim(degree),) * 2
    exactly(rho @ rho.mH, torch.eye(rho.shape[-1]).expand_as(rho.real).to(rho))
    Y = group.harmonics(degree, torch.cat([random_directions(group), nearly_poles(group)]))
    assert Y.shape[-1] == group.irrep_dim(degree)
    exactly(Y.abs().square().sum(-1), torch.ones(len(Y)))


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_a_tiny_rotation_is_resolved_and_not_lost_in_rounding(group, degree):
    """At 1e-9 a law to 1e-10 says little: the difference quotient says that the generator comes out."""
    angle = 1e-6
    for R in nearly_identities(group, angle):
        quotient = (group.irrep(degree, R) - torch.eye(group.irrep_dim(degree))) / angle
        expected = (oracles.irrep(group, degree, R.numpy()) - np.eye(group.irrep_dim(degree))) / angle
        exactly(quotient, expected, tolerance=1e-8)


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_harmonics_agree_with_scipy(group, degree):
    """Ours are e3nn's: the polar axis is the second coordinate, so (first, second, third) are a textbook's (Y, Z, X).

    scipy's harmonics are complex; ``oracles.complex_to_real`` takes them to the real ones, and they are scaled from
    unit integral over the sphere to unit length. In the plane the reference is the power of a complex number.
    """
    u = torch.cat([random_directions(group, 200), nearly_poles(group)])
    exactly(group.harmonics(degree, u), oracles.harmonics(group, degree, u.numpy()))


@pytest.mark.parametrize(("group", "degree"), CASES, ids=str)
def test_irreps_agree_with_exponentiated_generators(group, degree):
    R = torch.cat([random_rotations(group), torch.stack(group.grid_rotations())])
    exactly(group.irrep(degree, R), np.stack([oracles.irrep(group, degree, each) for each in R.numpy()]))


@pytest.mark.parametrize("degree", range(9))
def test_harmonics_and_wigner_matrices_are_those_of_e3nn(degree):
    from e3nn import o3

    u, angles = random_directions(SO3), 7 * torch.rand(3, 50)
    theirs = o3.spherical_harmonics(degree, u, normalize=False, normalization="norm")
    exactly(SO3.harmonics(degree, u), theirs)
    exactly(SO3.irrep(degree, o3.angles_to_matrix(*angles)), o3.wigner_D(degree, *angles))


def test_degree_one_of_space_is_the_vector_itself():
    R, u = SO3.random_rotation(), random_directions(SO3)
    exactly(SO3.irrep(1, R), R)
    exactly(SO3.harmonics(1, u), u)


def test_harmonics_are_orthogonal_with_mean_square_one_over_their_number(group):
    degrees = range(-16, 17) if group is SO2 else range(9)
    nodes, weights = oracles.directions(group, 40)
    Y = torch.cat([group.harmonics(degree, torch.from_numpy(nodes)) for degree in degrees], dim=-1)
    gram = Y.mH @ (torch.from_numpy(weights)[:, None] * Y)
    expected = torch.cat([torch.full((n,), 1 / n) for n in map(group.irrep_dim, degrees)])
    exactly(gram, torch.diag(expected).to(gram))


def test_float32_comes_out_as_float32_and_close(group):
    R, u = group.random_rotation(), random_directions(group)
    for degree in range(7):
        for exact, single in (
            (group.irrep(degree, R), group.irrep(degree, R.float())),
            (group.harmonics(degree, u), group.harmonics(degree, u.float())),
        ):
            assert single.real.dtype == torch.float32
            exactly(single, exact, tolerance=1e-5)


@pytest.mark.parametrize("degree", [-1, 1.5, True])
def test_a_degree_that_is_no_irrep_is_refused(group, degree, unchecked):
    with pytest.raises(ValueError, match=rf"a degree of {group} is an integer >= 0, got {degree}"):
        group.require_degree(degree)


def test_space_has_no_negative_degrees():
    with pytest.raises(ValueError, match="a degree of SO3 is an integer >= 0, got -2"):
        SO3.irrep(-2, torch.eye(3))
    with pytest.raises(ValueError, match="a degree of SO3 is an integer >= 0, got -1"):
        SO3.harmonics(-1, torch.eye(3))
