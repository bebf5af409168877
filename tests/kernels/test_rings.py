"""Continuous kernels: the steering law at any point and any angle, and that no steerable kernel is missing."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.kernels import KernelBasis, Rings, RingsAtPoints
from steerformer.kernels.rings import direction_harmonics

pytestmark = pytest.mark.usefixtures("float64")
RADII = (0.0, 1.0, 2.3)
PAIRS = [(SO2, *pair) for pair in itertools.product(range(9), repeat=2)]
PAIRS += [(SO3, *pair) for pair in itertools.product(range(4), repeat=2)]


def one_copy(group, degree):
    return FieldType(group, f"1x{degree}")


def kernel_at(basis_types, rings, points, weights=None):
    """The kernel with given or random weights, points first, and the weights."""
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
        turned, _ = kernel_at((in_type, out_type), rings, points @ R.mT, weights)
        rho_out, rho_in = (torch.from_numpy(oracles.channel_matrix(t, R.numpy())) for t in (out_type, in_type))
        assert_close(turned, rho_out @ kernel @ rho_in.mT, rtol=0, atol=1e-10)
    return kernel


@pytest.mark.parametrize(("group", "degree_out", "degree_in"), PAIRS, ids=str)
def test_kernel_obeys_the_steering_constraint(group, degree_out, degree_in):
    kernel = assert_steerable(one_copy(group, degree_in), one_copy(group, degree_out))
    assert kernel.abs().max() > 0.1


def test_kernel_between_mixed_and_image_types_obeys_the_steering_constraint(group):
    image, features = FieldType.image(group, 2), FieldType(group, (2, 1, 2))
    other = FieldType(group, (1, 0, 3, 1))
    for in_type, out_type in itertools.product((image, features, other), repeat=2):
        assert_steerable(in_type, out_type)


def test_the_constraint_would_notice_a_mirrored_kernel(group):
    """A negative control for the tests above: seen in a mirror, a kernel turns the wrong way."""
    in_type, out_type = one_copy(group, 1), one_copy(group, 2)
    mirror = torch.tensor([-1.0, 1.0, 1.0])[: group.dim]
    points, R, rings = torch.randn(10, group.dim), group.random_rotation(), Rings(group, (1.0,))
    kernel, weights = kernel_at((in_type, out_type), rings, points * mirror)
    turned, _ = kernel_at((in_type, out_type), rings, points @ R.mT * mirror, weights)
    expected = out_type.matrix(R) @ kernel @ in_type.matrix(R).mT
    assert (turned - expected).abs().max() > 0.05


@pytest.mark.parametrize("radius", [0.0, 1.5])
@pytest.mark.parametrize(("group", "degree_out", "degree_in"), PAIRS, ids=str)
def test_there_are_as_many_kernels_as_the_constraint_allows(group, degree_out, degree_in, radius):
    """The oracle solves the constraint at one point by linear algebra; the basis must span all its solutions."""
    point = torch.nn.functional.normalize(torch.randn(1, group.dim), dim=-1) * radius
    source = RingsAtPoints(Rings(group, (radius,)), point)
    basis = KernelBasis(one_copy(group, degree_in), one_copy(group, degree_out), source)
    allowed = oracles.steerable_dimension(group, degree_out, degree_in, radius)
    assert len(basis.paths) == basis.num_weights == allowed
    if allowed:
        columns = [basis.assemble(torch.eye(allowed)[[i]] * torch.tensor([[1.0], [0.0]])) for i in range(allowed)]
        values = torch.stack([torch.complex(*column).flatten() for column in columns])
        assert torch.linalg.matrix_rank(values) == allowed


def test_real_scalars_meet_in_real_weights_and_complex_fields_in_complex_ones(group):
    """Real-linear maps: one real number between real scalars, a complex one as soon as one side is complex."""
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


def test_rings_are_gaussians_of_the_radius_times_harmonics(group):
    rings, points = Rings(group, RADII, width=0.7), torch.randn(30, group.dim).numpy()
    r = np.linalg.norm(points, axis=-1)
    for harmonic in (-2, 0, 1, 3) if group is SO2 else (0, 1, 3):
        values, purity = rings.functions(harmonic, torch.from_numpy(points))[:2]
        Y = oracles.harmonics(group, harmonic, points / r[:, None])
        kept = [radius for radius in RADII if radius > 0 or harmonic == 0]
        expected = np.stack([np.exp(-((r - radius) ** 2) / 2 / 0.49) * Y.T for radius in kept])
        np.testing.assert_allclose(values.numpy(), expected, rtol=0, atol=1e-12)
        assert purity.tolist() == [1.0] * len(kept)


def test_the_origin_has_no_direction(group):
    origin = torch.zeros(1, group.dim)
    assert direction_harmonics(group, 0, origin).abs().item() == pytest.approx(1)
    for harmonic in (1, 2, 3):
        assert not direction_harmonics(group, harmonic, origin).any()


def test_a_lone_blob_carries_no_direction(group):
    assert Rings(group, (0.0,)).functions(1, torch.randn(5, group.dim)).values.shape[0] == 0


@pytest.mark.parametrize("radii", [(), (-1.0, 2.0)])
def test_rings_without_radii_or_of_negative_radius_are_refused(group, radii):
    with pytest.raises(ValueError, match="one or more radii >= 0"):
        Rings(group, radii)


def test_rings_without_width_are_refused(group):
    with pytest.raises(ValueError, match="a width > 0, got 0"):
        Rings(group, (1.0,), width=0.0)
