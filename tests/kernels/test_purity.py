"""Purity and gain against direct integrals over frequencies and against random signals."""

import itertools
import math

import numpy as np
import pytest
import torch

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.kernels import Spectrum, VoxelKernels
from steerformer.kernels.purity import GridForms
from steerformer.testing import blobs

pytestmark = pytest.mark.usefixtures("float64")
FAMILIES = ("sampled", "fitted", "purest")
GRIDS = [(SO2, 3), (SO2, 4), (SO2, 5), (SO2, 7), (SO3, 3)]
GRIDS += [pytest.param(SO3, size, marks=pytest.mark.slow) for size in (4, 5)]
ANGLE = math.radians(17)


def kernels(group, size, family, **options):
    return VoxelKernels(group, (size,) * group.dim, family=family, **{"max_impurity": 1.0, **options})


def voxels(group, size):
    """Centers of the voxels, ``(voxel, dim)``."""
    axes = [np.arange(size) - (size - 1) / 2] * group.dim
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, group.dim)


def all_kernels(group, size, **options):
    """Kernels ``(kernel, order, voxel)`` and purities of all families, by harmonic."""
    values, purities = {}, {}
    for J in range(-2, 6) if group is SO2 else range(4):
        found = [kernels(group, size, family, **options).functions(J) for family in FAMILIES]
        values[J] = torch.cat([each.values.flatten(2) for each in found]).numpy()
        purities[J] = torch.cat([each.purity for each in found]).numpy()
    return values, purities


@pytest.mark.parametrize("kind", ["gaussian", "natural"])
@pytest.mark.parametrize(("group", "size"), GRIDS, ids=str)
def test_purity_is_the_fraction_of_energy_in_the_harmonic(group, size, kind):
    values, purities = all_kernels(group, size, spectrum=Spectrum(kind))
    energies = oracles.spectral_energies(group, values, voxels(group, size), kind=kind)
    for J, (equivariant, total) in energies.items():
        np.testing.assert_allclose(purities[J], equivariant / total, rtol=0, atol=1e-6, err_msg=f"harmonic {J}")


def test_gain_is_the_equivariant_energy_per_frequency(group):
    """From frequency 0 to Nyquist, averaged over the directions of the waves."""
    nodes, share = oracles.directions(group, 40)
    z = voxels(group, 4)
    for family, J in itertools.product(FAMILIES, (0, 1, 2)):
        found = kernels(group, 4, family).functions(J)
        Y = oracles.harmonics(group, J, nodes).conj()
        omegas = np.linspace(0, np.pi, found.gain.shape[1])
        for omega, gain in zip(omegas, found.gain.numpy().T, strict=True):
            V = found.values.flatten(2).numpy() @ np.exp(1j * omega * z @ nodes.T)
            equivariant = np.abs(np.einsum("kmd,dm,d->k", V, Y, share)) ** 2
            np.testing.assert_allclose(gain, equivariant, rtol=0, atol=1e-8)


def smoothed_noise(z, sigma):
    r"""White noise smoothed by a Gaussian has the autocorrelation $e^{-d^2/4\sigma^2}$, in any dimension."""
    return np.exp(-((z[:, None] - z) ** 2).sum(-1) / (4 * sigma**2))


@pytest.mark.parametrize("sigma", [1.0, 1.7])
def test_total_energy_form_is_the_signal_autocorrelation(group, sigma):
    source = kernels(group, 5, "fitted")
    forms = GridForms(source.size, source.steps, source.rings, Spectrum(sigma=sigma), unit=1.0)
    np.testing.assert_allclose(forms.T, smoothed_noise(voxels(group, 5), sigma), rtol=0, atol=1e-9)


@pytest.mark.parametrize("sigma", [1.0, 1.7])
def test_response_normalization_gives_unit_variance(group, sigma):
    T = smoothed_noise(voxels(group, 4), sigma)
    options = {"normalization": "response", "spectrum": Spectrum(sigma=sigma)}
    for family in FAMILIES:
        for J in (0, 1, 2):
            found = kernels(group, 4, family, **options).functions(J)
            v = found.values.flatten(2).numpy()
            variance = np.einsum("kmz,zy,kmy->k", v.conj(), T, v).real
            strong = (np.abs(v) ** 2).sum((1, 2)) < 1e3  # others have almost no response, so rounding dominates
            np.testing.assert_allclose(variance[strong], 1, rtol=1e-6)
            np.testing.assert_allclose(found.energy.numpy(), 1, rtol=1e-12)
            assert strong.any()


def test_energy_is_the_variance_of_the_response(group):
    T = smoothed_noise(voxels(group, 4), 1.0)
    for family, J in itertools.product(FAMILIES, (0, 1, 2)):
        found = kernels(group, 4, family).functions(J)
        v = found.values.flatten(2).numpy()
        variance = np.einsum("kmz,zy,kmy->k", v.conj(), T, v).real
        np.testing.assert_allclose(found.energy.numpy(), variance, rtol=1e-6, atol=1e-10)


def random_signals(group, count):
    r"""Frequencies and amplitudes of plane waves whose sums are Gaussian signals of the spectrum $e^{-\omega^2}$.

    High frequencies are rare but have the largest errors: importance sampling draws them 1.8 times as wide.
    """
    waves, wide = 2, 1.8
    frequency = wide * torch.randn(count, waves, group.dim) / math.sqrt(2)
    density_ratio = wide**group.dim * torch.exp(-frequency.square().sum(-1) * (1 - wide**-2))
    return frequency, torch.polar(density_ratio.sqrt(), 2 * math.pi * torch.rand(count, waves))


def measured_errors(group, tested, size, rotations):
    """Relative error of each kernel on random signals, one per rotation; signals are rotated by their frequencies.

    ``tested`` holds pairs of harmonic and kernel values; all see the same signals.
    """
    frequency, amplitude = random_signals(group, len(rotations))
    z = torch.from_numpy(voxels(group, size)).mT

    def signal(frequency):
        return torch.einsum("nw,nwz->nz", amplitude, torch.exp(1j * (frequency @ z)))

    original, rotated = signal(frequency), signal(torch.einsum("nij,nwj->nwi", rotations, frequency))
    for J, v in tested:
        before, after = (each @ v.flatten(1).to(each).mT for each in (original, rotated))
        expected = torch.einsum("noi,ni->no", group.irrep(J, rotations).to(before), before)
        yield ((after - expected).norm() / before.norm()).item()


CASES = [(family, J, -1) for family in FAMILIES for J in (1, 2, 3)] + [("purest", J, 0) for J in (1, 2, 3)]


def test_error_on_random_signals_matches_purity(group):
    """Over uniform rotations the relative error is sqrt(2 (1 - purity)); 5 % is five times the sampling error."""
    rotations = torch.from_numpy(oracles.random_rotations(group, 20000 if group is SO2 else 5000))
    found = [kernels(group, 5, family).functions(J) for family, J, _ in CASES]
    tested = [(J, each.values[index]) for each, (_, J, index) in zip(found, CASES, strict=True)]
    for case, each, error in zip(CASES, found, measured_errors(group, tested, 5, rotations), strict=True):
        assert error == pytest.approx(math.sqrt(2 * (1 - each.purity[case[-1]].item())), rel=0.05), case


def test_error_at_17_degrees_matches_angular_energies():
    """Energy of angular frequency n is rotated by n times the angle instead of J times."""
    cases = [*CASES, ("sampled", -2, 0), ("purest", -3, 0)]
    tested = [(J, kernels(SO2, 5, family).functions(J).values[index]) for family, J, index in cases]
    errors = measured_errors(SO2, tested, 5, SO2.rotation(ANGLE).expand(20000, 2, 2))
    for case, (J, value), error in zip(cases, tested, errors, strict=True):
        n, energy = oracles.angular_energies(value.flatten().numpy(), voxels(SO2, 5))
        wrong = np.abs(np.exp(1j * n * ANGLE) - np.exp(1j * J * ANGLE)) ** 2
        assert error == pytest.approx(math.sqrt(wrong @ energy / energy.sum()), rel=0.05), case


def blob_error(group, J, v, sigma, rotations):
    """Relative error at the central voxel on analytically rotated blobs; root mean square over rotations."""
    scene = blobs(FieldType.image(group, 1), batch=128, sigma=sigma)
    respond = lambda scene: scene.sample(v.shape[1]).flatten(1).to(v) @ v.flatten(1).mT  # noqa: E731
    before = respond(scene)
    errors = [respond(scene.rotate(R)) - before @ group.irrep(J, R).mT for R in rotations]
    return (torch.stack(errors).square().abs().sum(dim=(1, 2)).mean().sqrt() / before.norm()).item()


@pytest.mark.parametrize("harmonic", [1, 2, 3])
def test_purest_kernel_has_a_fifth_of_the_error_of_sampled_rings(group, harmonic):
    rotations = [SO2.rotation(ANGLE)] if group is SO2 else [SO3.random_rotation() for _ in range(8)]
    sigma = 2.0 if group is SO2 else 1.5
    rings = kernels(group, 5, "sampled", radii=(1.0, 2.0)).functions(harmonic).values
    sampled = min(blob_error(group, harmonic, ring, sigma, rotations) for ring in rings)
    purest = kernels(group, 5, "purest").functions(harmonic).values[0]
    assert 5 * blob_error(group, harmonic, purest, sigma, rotations) < sampled


def test_purest_kernels_are_sorted_and_no_other_is_purer(group):
    for J in (0, 1, 2, 3):
        best = kernels(group, 5, "purest").functions(J).purity
        assert torch.equal(best, best.sort(descending=True).values)
        for family in ("sampled", "fitted"):
            others = kernels(group, 5, family).functions(J).purity
            assert others.max() <= best[0] + 1e-4  # the noise term trades a little purity for a smaller norm


def test_purity_is_between_0_and_1(group):
    for family in FAMILIES:
        for J in range(7):
            purity = kernels(group, 4, family).functions(J).purity
            assert ((purity > -1e-9) & (purity < 1 + 1e-9)).all()
