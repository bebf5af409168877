"""Voxels that are not cubes: kernels built with the spacing turn rightly in physical space."""

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
    return VoxelKernels(group, (size,) * group.dim, family=family, spacing=spacing, **{"tolerance": 1.0, **options})


def turned(values, R):
    """The kernel R v (R^-1 z) voxel by voxel, without the irrep: R is one of the grid, the grid a cube."""
    n = values.shape[-1]
    index = np.indices(values.shape[2:]).reshape(values.ndim - 2, -1) - (n - 1) / 2
    source = (R.numpy().T @ index + (n - 1) / 2).round().astype(int)
    return values[(..., *source)].reshape(values.shape)


def physical_error(group, J, v, spacing, sigma=3.0):
    """Relative error on blobs turned in physical space and sampled with the spacing."""
    scene = blobs(FieldType.image(group, 1), batch=128, sigma=sigma)
    look = lambda scene: scene.sample(v.shape[1:], spacing).flatten(1).to(v) @ v.flatten(1).mT  # noqa: E731
    before = look(scene)
    rotations = torch.from_numpy(oracles.random_rotations(group, 8))
    errors = [look(scene.rotate(R)) - before @ group.irrep(J, R).mT for R in rotations]
    return (torch.stack(errors).abs().square().sum(dim=(1, 2)).mean().sqrt() / before.norm()).item()


@pytest.mark.parametrize("family", ["fitted", "purest"])
@pytest.mark.parametrize("harmonic", [1, 2])
def test_knowing_the_spacing_makes_physical_errors_ten_times_smaller(group, family, harmonic):
    spacing = SPACINGS[group.dim]
    best = {
        known: min(physical_error(group, harmonic, v, spacing) for v in source.functions(harmonic).values)
        for known, source in ((True, kernels(group, family, spacing)), (False, kernels(group, family)))
    }
    assert best[True] < 0.05
    assert 10 * best[True] < best[False]


@pytest.mark.parametrize("harmonic", [1, 2])
def test_every_kernel_that_passes_the_tolerance_turns_rightly_in_physical_space(group, harmonic):
    for family in FAMILIES:
        source = kernels(group, family, SPACINGS[group.dim], tolerance=1e-2)
        for v in source.functions(harmonic).values:
            assert physical_error(group, harmonic, v, source.spacing) < 0.15


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_exact_under_the_rotations_that_keep_the_box(group, family):
    source = kernels(group, family, SPACINGS[group.dim])
    assert len(source.rotations) == {2: 2, 3: 8}[group.dim]
    for harmonic in (0, 1, 2, 3):
        values = source.functions(harmonic).values
        for R in source.rotations:
            rho = torch.from_numpy(oracles.irrep(group, harmonic, R.numpy())).to(values)
            assert_close(torch.einsum("om,km...->ko...", rho, turned(values, R)), values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_turning_the_spacing_turns_the_kernel(group, family):
    """The long axis first instead of last: the same physics, so the same kernel, turned."""
    last, first = (kernels(group, family, spacing) for spacing in (SPACINGS[group.dim], SPACINGS[group.dim][::-1]))
    R = next(R for R in group.grid_rotations() if R[0, -1] == 1)
    for harmonic in (0, 1, 2):
        one, other = last.functions(harmonic), first.functions(harmonic)
        pure = 1 - one.purity < 0.5
        rho = torch.from_numpy(oracles.irrep(group, harmonic, R.numpy())).to(one.values)
        expected = torch.einsum("om,km...->ko...", rho, turned(one.values, R))
        assert_close(other.values[pure], expected[pure], rtol=0, atol=1e-4)
        assert_close(other.purity[pure], one.purity[pure], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_ratios_of_the_spacing_matter(group, family):
    plain, scaled = kernels(group, family, tolerance=1e-2), kernels(group, family, (2.5,) * group.dim, tolerance=1e-2)
    for harmonic in range(4):
        assert_close(scaled.functions(harmonic).values, plain.functions(harmonic).values, rtol=0, atol=1e-4)
        assert_close(scaled.functions(harmonic).purity, plain.functions(harmonic).purity, rtol=0, atol=1e-6)


def test_purity_with_spacing_is_the_share_of_the_energy_in_its_harmonic(group):
    spacing = SPACINGS[group.dim]
    points = voxel_coordinates((4,) * group.dim, spacing).flatten(0, -2).numpy()
    for family in FAMILIES:
        found = {J: kernels(group, family, spacing, size=4).functions(J) for J in (0, 1, 2, 3)}
        values = {J: each.values.flatten(2).numpy() for J, each in found.items()}
        energies = oracles.spectral_energies(group, values, points, sigma=max(spacing))  # its unit is the coarsest
        for J, (right, total) in energies.items():
            np.testing.assert_allclose(found[J].purity.numpy(), right / total, rtol=0, atol=1e-6)


def test_a_box_is_measured_by_voxels_and_spacing_together():
    """Quarter turns keep a box only if neither counts of voxels nor lengths change places."""
    assert len(VoxelKernels(SO2, (5, 5), spacing=(2.0, 2.0)).rotations) == 4
    assert len(VoxelKernels(SO2, (6, 3), spacing=(1.0, 2.0)).rotations) == 2
    assert len(VoxelKernels(SO3, (5, 5, 3), spacing=(1.0, 1.0, 2.0)).rotations) == 8
    assert len(VoxelKernels(SO3, (5, 4, 3)).rotations) == 4
