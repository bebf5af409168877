"""Continuous kernels: steerability at any point and angle, and completeness of the basis."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from checks import raises
from steerformer import SO2, SO3, FieldType
from steerformer.kernels import KernelBasis, Rings, RingsAtPoints
from steerformer.kernels.rings import direction_harmonics

pytestmark = pytest.mark.usefixtures("float64")
RADII = (0.0, 1.0, 2.3)
PAIRS = {SO2: list(itertools.product(range(9), repeat=2)), SO3: list(itertools.product(range(4), repeat=2))}


def one_copy(group, degree):
    return FieldType(group, f"1x{degree}")


def kernel_at(basis_types, rings, points, weights=None):
    """Kernel ``(point, out, in)`` with given or random weights, and the weights."""
    basis = KernelBasis(*basis_types, RingsAtPoints(rings, points))
    if weights is None:
        weights = torch.randn(basis.weight_parts, basis.num_weights)
    return basis(weights).movedim(-1, 0), weights


def assert_steerable(in_type, out_type, radii=RADII):
    group = in_type.group
    rings = Rings(group, radii)
    points = torch.cat([2 * torch.randn(20, group.dim), torch.zeros(1, group.dim)])
    kernel, weights = kernel_at((in_type, out_type), rings, points)
    for _ in range(4):
        R = group.random_rotation()
        rotated, _ = kernel_at((in_type, out_type), rings, points @ R.mT, weights)
        rho_out, rho_in = (torch.from_numpy(oracles.channel_matrix(t, R.numpy())) for t in (out_type, in_type))
        expected = rho_out @ kernel @ rho_in.mT
        assert_close(rotated, expected, rtol=0, atol=1e-10, msg=lambda text: f"{in_type} -> {out_type}: {text}")
    return kernel


def test_kernel_satisfies_steerability_constraint(group, unchecked):
    for degree_out, degree_in in PAIRS[group]:
        kernel = assert_steerable(one_copy(group, degree_in), one_copy(group, degree_out))
        assert kernel.abs().max() > 0.1, (degree_out, degree_in)


def test_kernel_between_mixed_types_satisfies_steerability_constraint(group, unchecked):
    image, features = FieldType.image(group, 2), FieldType(group, (2, 1, 2))
    other = FieldType(group, (1, 0, 3, 1))
    for in_type, out_type in itertools.product((image, features, other), repeat=2):
        assert_steerable(in_type, out_type)


def test_mirrored_kernel_violates_steerability_constraint(group):
    """Negative control for the tests above: mirrored points break steerability."""
    in_type, out_type = one_copy(group, 1), one_copy(group, 2)
    mirror = torch.tensor([-1.0, 1.0, 1.0])[: group.dim]
    points, R, rings = torch.randn(10, group.dim), group.random_rotation(), Rings(group, (1.0,))
    kernel, weights = kernel_at((in_type, out_type), rings, points * mirror)
    rotated, _ = kernel_at((in_type, out_type), rings, points @ R.mT * mirror, weights)
    expected = out_type.matrix(R) @ kernel @ in_type.matrix(R).mT
    assert (rotated - expected).abs().max() > 0.05


def test_basis_spans_all_solutions_of_the_constraint(group, unchecked):
    """The oracle solves the constraint at one point by linear algebra."""
    for (degree_out, degree_in), radius in itertools.product(PAIRS[group], (0.0, 1.5)):
        case = (degree_out, degree_in, radius)
        point = torch.nn.functional.normalize(torch.randn(1, group.dim), dim=-1) * radius
        source = RingsAtPoints(Rings(group, (radius,)), point)
        basis = KernelBasis(one_copy(group, degree_in), one_copy(group, degree_out), source)
        allowed = oracles.steerable_dimension(group, degree_out, degree_in, radius)
        assert len(basis.paths) == basis.num_weights == allowed, case
        if allowed:
            columns = [basis.assemble(torch.eye(allowed)[[i]] * torch.tensor([[1.0], [0.0]])) for i in range(allowed)]
            values = torch.stack([torch.complex(*column).flatten() for column in columns])
            assert torch.linalg.matrix_rank(values) == allowed, case


def test_weights_are_real_between_real_scalars_only(group):
    """One real weight between real scalars, a complex one if either side is complex."""
    image, scalars = FieldType.image(group, 1), FieldType(group, (1,))
    source = RingsAtPoints(Rings(group, (1.0,)), torch.randn(3, group.dim))
    parts = {(i.real, o.real): KernelBasis(i, o, source) for i, o in itertools.product((image, scalars), repeat=2)}
    assert {key: basis.weight_parts for key, basis in parts.items()} == {
        (True, True): 1,
        (True, False): 2,
        (False, True): 2,
        (False, False): 2,
    }
    assert all(basis.num_weights == 1 for basis in parts.values())
    assert parts[True, True](torch.ones(1, 1)).shape == (1, 1, 3)


def test_rings_are_gaussians_times_harmonics(group):
    rings, points = Rings(group, RADII, width=0.7), torch.randn(30, group.dim).numpy()
    r = np.linalg.norm(points, axis=-1)
    for harmonic in (-2, 0, 1, 3) if group is SO2 else (0, 1, 3):
        values, purity = rings.functions(harmonic, torch.from_numpy(points))[:2]
        Y = oracles.harmonics(group, harmonic, points / r[:, None])
        kept = [radius for radius in RADII if radius > 0 or harmonic == 0]
        expected = np.stack([np.exp(-((r - radius) ** 2) / 2 / 0.49) * Y.T for radius in kept])
        np.testing.assert_allclose(values.numpy(), expected, rtol=0, atol=1e-12)
        assert purity.tolist() == [1.0] * len(kept)


def test_harmonics_at_origin_are_zero_except_degree_0(group):
    origin = torch.zeros(1, group.dim)
    assert direction_harmonics(group, 0, origin).abs().item() == pytest.approx(1)
    for harmonic in (1, 2, 3):
        assert not direction_harmonics(group, harmonic, origin).any()


def test_ring_of_radius_0_has_harmonic_0_only(group):
    assert Rings(group, (0.0,)).functions(1, torch.randn(5, group.dim)).values.shape[0] == 0


def test_invalid_radii_raise(group):
    for radii in ((), (-1.0, 2.0)):
        with raises(radii, "one or more radii >= 0"):
            Rings(group, radii)


def test_zero_width_raises(group):
    with pytest.raises(ValueError, match="a width > 0, got 0"):
        Rings(group, (1.0,), width=0.0)
