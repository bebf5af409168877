"""Anisotropic voxels: kernels built with the spacing are equivariant in physical space."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.fields import voxel_coordinates
from steerformer.kernels import VoxelKernels
from steerformer.testing import blobs

pytestmark = pytest.mark.usefixtures("float64")
FAMILIES = ("sampled", "fitted", "purest")
SPACINGS = {2: (1.0, 3.0), 3: (1.0, 1.0, 3.0)}


def kernels(group, family, spacing=None, size=5, **options):
    return VoxelKernels(group, (size,) * group.dim, family=family, spacing=spacing, **{"max_impurity": 1.0, **options})


def rotated(values, R):
    """Kernel v(R^-1 z) for a rotation R of a cubic grid, without the irrep."""
    n = values.shape[-1]
    index = np.indices(values.shape[2:]).reshape(values.ndim - 2, -1) - (n - 1) / 2
    source = (R.numpy().T @ index + (n - 1) / 2).round().astype(int)
    return values[(..., *source)].reshape(values.shape)


def physical_errors(group, J, values, spacing, sigma=3.0):
    """Relative error of each kernel on blobs rotated in physical space and sampled with the spacing."""
    scene = blobs(FieldType.image(group, 1), batch=128, sigma=sigma)

    def respond(scene):
        sampled = scene.sample(values.shape[2:], spacing).flatten(1).to(values)
        return torch.einsum("bz,koz->kbo", sampled, values.flatten(2))

    before = respond(scene)
    rotations = torch.from_numpy(oracles.random_rotations(group, 8))
    errors = [respond(scene.rotate(R)) - before @ group.irrep(J, R).to(before).mT for R in rotations]
    squares = torch.stack(errors).abs().square().sum(dim=(2, 3)).mean(dim=0)
    return squares.sqrt() / before.flatten(1).norm(dim=1)


@pytest.mark.parametrize("family", ["fitted", "purest"])
def test_spacing_reduces_physical_error_tenfold(group, family):
    spacing = SPACINGS[group.dim]
    for harmonic in (1, 2):
        best = {
            known: physical_errors(group, harmonic, source.functions(harmonic).values, spacing).min()
            for known, source in ((True, kernels(group, family, spacing)), (False, kernels(group, family)))
        }
        assert best[True] < 0.05, harmonic
        assert 10 * best[True] < best[False], harmonic


def test_pure_kernels_are_equivariant_in_physical_space(group):
    for family, harmonic in itertools.product(FAMILIES, (1, 2)):
        source = kernels(group, family, SPACINGS[group.dim], max_impurity=1e-2)
        errors = physical_errors(group, harmonic, source.functions(harmonic).values, source.spacing)
        assert (errors < 0.15).all(), (family, harmonic)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_exact_under_rotations_of_the_box(group, family):
    source = kernels(group, family, SPACINGS[group.dim])
    assert len(source.rotations) == {2: 2, 3: 8}[group.dim]
    for harmonic in (0, 1, 2, 3):
        values = source.functions(harmonic).values
        for R in source.rotations:
            rho = torch.from_numpy(oracles.irrep(group, harmonic, R.numpy())).to(values)
            assert_close(torch.einsum("om,km...->ko...", rho, rotated(values, R)), values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_rotated_spacing_gives_rotated_kernel(group, family):
    """With the long axis first instead of last, the kernel is the same up to a rotation."""
    last, first = (kernels(group, family, spacing) for spacing in (SPACINGS[group.dim], SPACINGS[group.dim][::-1]))
    R = next(R for R in group.grid_rotations() if R[0, -1] == 1)
    for harmonic in (0, 1, 2):
        one, other = last.functions(harmonic), first.functions(harmonic)
        pure = 1 - one.purity < 0.5
        rho = torch.from_numpy(oracles.irrep(group, harmonic, R.numpy())).to(one.values)
        expected = torch.einsum("om,km...->ko...", rho, rotated(one.values, R))
        assert_close(other.values[pure], expected[pure], rtol=0, atol=1e-4)
        assert_close(other.purity[pure], one.purity[pure], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_only_ratios_of_the_spacing_matter(group, family):
    plain, scaled = (
        kernels(group, family, max_impurity=1e-2),
        kernels(group, family, (2.5,) * group.dim, max_impurity=1e-2),
    )
    for harmonic in range(4):
        assert_close(scaled.functions(harmonic).values, plain.functions(harmonic).values, rtol=0, atol=1e-4)
        assert_close(scaled.functions(harmonic).purity, plain.functions(harmonic).purity, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_purity_with_spacing_is_the_fraction_of_energy_in_the_harmonic(group):
    spacing = SPACINGS[group.dim]
    points = voxel_coordinates((4,) * group.dim, spacing).flatten(0, -2).numpy()
    for family in FAMILIES:
        found = {J: kernels(group, family, spacing, size=4).functions(J) for J in (0, 1, 2, 3)}
        values = {J: each.values.flatten(2).numpy() for J, each in found.items()}
        energies = oracles.spectral_energies(group, values, points, sigma=max(spacing))  # coarsest spacing
        for J, (equivariant, total) in energies.items():
            np.testing.assert_allclose(found[J].purity.numpy(), equivariant / total, rtol=0, atol=1e-6)


def test_rotations_of_box_depend_on_size_and_spacing():
    """A rotation by 90 degrees keeps a box only if it swaps neither sizes nor spacings."""
    assert len(VoxelKernels(SO2, (5, 5), spacing=(2.0, 2.0)).rotations) == 4
    assert len(VoxelKernels(SO2, (6, 3), spacing=(1.0, 2.0)).rotations) == 2
    assert len(VoxelKernels(SO3, (5, 5, 3), spacing=(1.0, 1.0, 2.0)).rotations) == 8
    assert len(VoxelKernels(SO3, (5, 4, 3)).rotations) == 4
