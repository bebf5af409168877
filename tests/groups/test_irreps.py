"""Harmonics and irreps: transformation laws, and agreement with scipy, e3nn and exponentiated generators."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from checks import raises
from steerformer import SO2, SO3

DEGREES = {SO2: range(-16, 17), SO3: range(9)}
pytestmark = pytest.mark.usefixtures("float64")


def assert_exact(actual, expected, tolerance=1e-10, degree=None):
    assert_close(
        torch.as_tensor(actual),
        torch.as_tensor(expected),
        rtol=0,
        atol=tolerance,
        check_dtype=False,
        msg=lambda text: text if degree is None else f"degree {degree}: {text}",
    )


def random_rotations(group, count=50):
    return torch.stack([group.random_rotation() for _ in range(count)])


def random_directions(group, count=50):
    return torch.nn.functional.normalize(torch.randn(count, group.dim), dim=-1)


def nearly_poles(group):
    """Axes in both directions, and neighbors at distance 1e-9, where angles are ill-conditioned."""
    axes = torch.cat([torch.eye(group.dim), -torch.eye(group.dim)])
    return torch.cat(
        [axes, torch.nn.functional.normalize(axes + 1e-9 * torch.randn(10, *axes.shape), dim=-1).flatten(0, 1)]
    )


def nearly_identities(group, angle):
    if group is SO2:
        return torch.stack([SO2.rotation(angle), SO2.rotation(-angle)])
    return torch.stack([SO3.rotation(angle, tuple(axis)) for axis in random_directions(SO3, 10).tolist()])


def test_harmonics_are_equivariant(group):
    """In random directions and near the poles, for random rotations, grid rotations, tiny ones and by 180 degrees."""
    special = [nearly_identities(group, 1e-9), nearly_identities(group, np.pi)]
    R = torch.cat([random_rotations(group), torch.stack(group.grid_rotations()), *special])
    u = torch.cat([random_directions(group), nearly_poles(group)])
    for degree in DEGREES[group]:
        expected = torch.einsum("roi,ui->ruo", group.irrep(degree, R), group.harmonics(degree, u))
        assert_exact(group.harmonics(degree, torch.einsum("rij,uj->rui", R, u)), expected, degree=degree)


def test_irrep_is_a_homomorphism(group):
    second = torch.cat([nearly_identities(group, 1e-9), torch.stack(group.grid_rotations()), random_rotations(group)])
    first = random_rotations(group, len(second))
    for degree in DEGREES[group]:
        product = group.irrep(degree, first) @ group.irrep(degree, second)
        assert_exact(group.irrep(degree, first @ second), product, degree=degree)


def test_irreps_are_unitary_and_harmonics_have_unit_norm(group):
    R = torch.cat([random_rotations(group), nearly_identities(group, 1e-9)])
    u = torch.cat([random_directions(group), nearly_poles(group)])
    for degree in DEGREES[group]:
        rho, Y = group.irrep(degree, R), group.harmonics(degree, u)
        assert rho.shape[-2:] == (group.irrep_dim(degree),) * 2
        assert_exact(rho @ rho.mH, torch.eye(rho.shape[-1]).expand_as(rho.real).to(rho), degree=degree)
        assert Y.shape[-1] == group.irrep_dim(degree)
        assert_exact(Y.abs().square().sum(-1), torch.ones(len(Y)), degree=degree)


def test_irrep_of_tiny_rotation_gives_generator(group):
    """The difference quotient must be the generator: at tiny angles the homomorphism test alone is weak."""
    angle = 1e-6
    for degree in DEGREES[group]:
        one = np.eye(group.irrep_dim(degree))
        for R in nearly_identities(group, angle):
            quotient = (group.irrep(degree, R) - torch.from_numpy(one)) / angle
            expected = (oracles.irrep(group, degree, R.numpy()) - one) / angle
            assert_exact(quotient, expected, tolerance=1e-8, degree=degree)


def test_harmonics_match_scipy(group):
    """As in e3nn, the polar axis is the second coordinate: (first, second, third) are a textbook's (Y, Z, X).

    scipy's complex harmonics are converted to real ones by ``oracles.complex_to_real`` and scaled from unit integral
    over the sphere to unit norm. In 2D the reference is the power of a complex number.
    """
    u = torch.cat([random_directions(group, 200), nearly_poles(group)])
    for degree in DEGREES[group]:
        assert_exact(group.harmonics(degree, u), oracles.harmonics(group, degree, u.numpy()), degree=degree)


def test_irreps_match_exponentiated_generators(group):
    R = torch.cat([random_rotations(group), torch.stack(group.grid_rotations())])
    for degree in DEGREES[group]:
        expected = np.stack([oracles.irrep(group, degree, each) for each in R.numpy()])
        assert_exact(group.irrep(degree, R), expected, degree=degree)


def test_harmonics_and_wigner_matrices_match_e3nn():
    from e3nn import o3

    u, angles = random_directions(SO3), 7 * torch.rand(3, 50)
    for degree in DEGREES[SO3]:
        reference = o3.spherical_harmonics(degree, u, normalize=False, normalization="norm")
        assert_exact(SO3.harmonics(degree, u), reference, degree=degree)
        matrices = SO3.irrep(degree, o3.angles_to_matrix(*angles))
        assert_exact(matrices, o3.wigner_D(degree, *angles), degree=degree)


def test_so3_degree_1_is_the_vector():
    R, u = SO3.random_rotation(), random_directions(SO3)
    assert_exact(SO3.irrep(1, R), R)
    assert_exact(SO3.harmonics(1, u), u)


def test_harmonics_are_orthogonal_and_normalized(group):
    degrees = DEGREES[group]
    nodes, weights = oracles.directions(group, 40)
    Y = torch.cat([group.harmonics(degree, torch.from_numpy(nodes)) for degree in degrees], dim=-1)
    gram = Y.mH @ (torch.from_numpy(weights)[:, None] * Y)
    expected = torch.cat([torch.full((n,), 1 / n) for n in map(group.irrep_dim, degrees)])
    assert_exact(gram, torch.diag(expected).to(gram))


def test_parts_of_harmonics_are_those_of_the_complex_ones(group):
    u = random_directions(group)
    for degree in range(7):
        expected = group.harmonics(degree, u)
        parts = [expected.real, expected.imag] if expected.is_complex() else [expected]
        for found, part in zip(group.harmonic_parts(degree, u), parts, strict=True):
            assert_exact(found, part)


def test_float32_input_gives_float32_output(group):
    R, u = group.random_rotation(), random_directions(group)
    for degree in range(7):
        for exact, single in (
            (group.irrep(degree, R), group.irrep(degree, R.float())),
            (group.harmonics(degree, u), group.harmonics(degree, u.float())),
        ):
            assert single.real.dtype == torch.float32
            assert_exact(single, exact, tolerance=1e-5)


def test_invalid_degree_raises(group, unchecked):
    for degree in (-1, 1.5, True):
        with raises(degree, rf"a degree of {group} is an integer >= 0, got {degree}"):
            group.require_degree(degree)


def test_so3_negative_degree_raises():
    with pytest.raises(ValueError, match="a degree of SO3 is an integer >= 0, got -2"):
        SO3.irrep(-2, torch.eye(3))
    with pytest.raises(ValueError, match="a degree of SO3 is an integer >= 0, got -1"):
        SO3.harmonics(-1, torch.eye(3))
