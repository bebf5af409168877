"""Couplings: the steering law, isometry, sympy's Clebsch-Gordan coefficients, and that none is missing."""

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


def matrix(C, y):
    return torch.einsum("ohi,h->oi", C.to(y), y)


ALL = [(SO2, *triple) for triple in triples(SO2, 8)] + [(SO3, *triple) for triple in triples(SO3, 4)]


@pytest.mark.parametrize(("group", "out", "harmonic", "inp"), ALL, ids=str)
def test_coupling_makes_steerable_matrices_and_keeps_length(group, out, harmonic, inp):
    C = group.coupling(out, harmonic, inp)
    for _ in range(5):
        R = group.random_rotation()
        y = torch.randn(group.irrep_dim(harmonic), dtype=torch.complex128)
        rho_out, rho, rho_in = (group.irrep(degree, R).to(y) for degree in (out, harmonic, inp))
        assert_close(rho_out @ matrix(C, y) @ rho_in.mH, matrix(C, rho @ y), rtol=0, atol=1e-10)
        assert_close(matrix(C, y).norm(), y.norm(), rtol=1e-10, atol=0)


@pytest.mark.parametrize(("out", "harmonic", "inp"), [t for t in triples(SO3, 4) if t[1] <= 4])
def test_couplings_of_space_are_clebsch_gordan_coefficients(out, harmonic, inp):
    """sympy's <J M, l m | l' m'>, turned to the real basis and scaled to an isometry, up to one phase a triple."""
    expected, found = oracles.coupling(out, harmonic, inp), SO3.coupling(out, harmonic, inp).numpy()
    phase = np.vdot(expected, found) / np.vdot(expected, expected)
    assert abs(abs(phase) - 1) < 1e-10
    np.testing.assert_allclose(found, phase * expected, rtol=0, atol=1e-10)


def test_couplings_of_one_pair_are_orthogonal_and_complete():
    """Nothing is missing and nothing is there twice: together they are a basis of all matrices."""
    for out, inp in itertools.product(range(5), repeat=2):
        rows = [SO3.coupling(out, J, inp).permute(1, 0, 2).flatten(1) for J in SO3.harmonic_degrees(out, inp)]
        basis = torch.cat(rows)
        assert basis.shape == ((2 * out + 1) * (2 * inp + 1),) * 2
        gram = basis @ basis.mT
        assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-10)
        assert gram.diagonal().min() > 0.01


def test_negative_harmonics_lower_the_degree_in_the_plane():
    assert SO2.harmonic_degrees(1, 4) == (-3,)
    assert SO2.harmonic_degrees(4, 1) == (3,)
    assert SO3.harmonic_degrees(1, 4) == SO3.harmonic_degrees(4, 1) == (3, 4, 5)


def test_an_impossible_coupling_is_refused(group):
    with pytest.raises(ValueError, match=rf"{group} couples degree 1 to 2 through .* got 7"):
        group.coupling(2, 7, 1)


def test_the_bessel_function_is_the_radial_part_of_a_plane_wave(group):
    r"""By quadrature, the mean of $Y(\hat\omega) e^{i\omega\cdot z}$ is $i^{|J|} b_J(|\omega||z|) Y(\hat z)$."""
    nodes, weights = oracles.directions(group, 60)
    z = torch.randn(group.dim).numpy()
    length = np.linalg.norm(z)
    for harmonic in (-3, -1, 0, 1, 2, 5) if group is SO2 else (0, 1, 2, 5):
        waves = oracles.harmonics(group, harmonic, nodes) * np.exp(2j * nodes @ z)[:, None]
        radial = 1j ** abs(harmonic) * group.bessel(harmonic, 2 * length)
        expected = radial * oracles.harmonics(group, harmonic, z / length)
        np.testing.assert_allclose(weights @ waves, expected, rtol=0, atol=1e-12)
