"""Couplings: steerability, isometry, completeness, and agreement with sympy's Clebsch-Gordan coefficients."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3

pytestmark = pytest.mark.usefixtures("float64")


def triples(group, max_degree):
    pairs = itertools.product(range(max_degree + 1), repeat=2)
    return [(out, J, inp) for out, inp in pairs for J in group.harmonic_degrees(out, inp)]


@pytest.mark.parametrize(("group", "max_degree"), [(SO2, 8), (SO3, 4)], ids=str)
def test_couplings_are_steerable_and_isometric(group, max_degree, unchecked):
    R = torch.stack([group.random_rotation() for _ in range(5)])
    rho = {degree: group.irrep(degree, R).to(torch.complex128) for degree in set().union(*triples(group, max_degree))}
    for out, harmonic, inp in triples(group, max_degree):
        case = lambda text, path=(out, harmonic, inp): f"{path}: {text}"  # noqa: E731
        C = group.coupling(out, harmonic, inp).to(torch.complex128)
        y = torch.randn(len(R), group.irrep_dim(harmonic), dtype=torch.complex128)
        before = torch.einsum("ohi,nh->noi", C, y)
        after = torch.einsum("ohi,nhk,nk->noi", C, rho[harmonic], y)
        assert_close(rho[out] @ before @ rho[inp].mH, after, rtol=0, atol=1e-10, msg=case)
        assert_close(before.flatten(1).norm(dim=1), y.norm(dim=1), rtol=1e-10, atol=0, msg=case)


def test_so3_couplings_match_sympy():
    """sympy's <J M, l m | l' m'>, in the real basis and scaled to an isometry, up to one phase per triple."""
    for out, harmonic, inp in triples(SO3, 4):
        if harmonic > 4:
            continue
        expected, found = oracles.coupling(out, harmonic, inp), SO3.coupling(out, harmonic, inp).numpy()
        phase = np.vdot(expected, found) / np.vdot(expected, expected)
        assert abs(abs(phase) - 1) < 1e-10, (out, harmonic, inp)
        np.testing.assert_allclose(found, phase * expected, rtol=0, atol=1e-10, err_msg=f"{out, harmonic, inp}")


def test_so3_couplings_are_orthogonal_and_complete():
    """The couplings of one pair of degrees form a basis of all matrices."""
    for out, inp in itertools.product(range(5), repeat=2):
        rows = [SO3.coupling(out, J, inp).permute(1, 0, 2).flatten(1) for J in SO3.harmonic_degrees(out, inp)]
        basis = torch.cat(rows)
        assert basis.shape == ((2 * out + 1) * (2 * inp + 1),) * 2
        gram = basis @ basis.mT
        assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-10)
        assert gram.diagonal().min() > 0.01


def test_so2_harmonic_degrees_are_signed_differences():
    assert SO2.harmonic_degrees(1, 4) == (-3,)
    assert SO2.harmonic_degrees(4, 1) == (3,)
    assert SO3.harmonic_degrees(1, 4) == SO3.harmonic_degrees(4, 1) == (3, 4, 5)


def test_impossible_coupling_raises(group):
    with pytest.raises(ValueError, match=rf"{group} couples degree 1 to 2 through .* got 7"):
        group.coupling(2, 7, 1)


def test_bessel_is_radial_part_of_plane_wave(group):
    r"""By quadrature, the mean of $Y(\hat\omega) e^{i\omega\cdot z}$ is $i^{|J|} b_J(|\omega||z|) Y(\hat z)$."""
    nodes, weights = oracles.directions(group, 60)
    z = torch.randn(group.dim).numpy()
    length = np.linalg.norm(z)
    for harmonic in (-3, -1, 0, 1, 2, 5) if group is SO2 else (0, 1, 2, 5):
        waves = oracles.harmonics(group, harmonic, nodes) * np.exp(2j * nodes @ z)[:, None]
        radial = 1j ** abs(harmonic) * group.bessel(harmonic, 2 * length)
        expected = radial * oracles.harmonics(group, harmonic, z / length)
        np.testing.assert_allclose(weights @ waves, expected, rtol=0, atol=1e-12)
