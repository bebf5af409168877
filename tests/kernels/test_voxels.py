"""Voxel kernels: exactness under grid rotations, count, normalization, reproducibility."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
from checks import raises
from steerformer import SO2, SO3
from steerformer.fields import voxel_coordinates
from steerformer.kernels import Spectrum, VoxelKernels, voxels

pytestmark = pytest.mark.usefixtures("float64")
FAMILIES = ("sampled", "fitted", "purest")
GRIDS = [(SO2, (n, n)) for n in (1, 2, 3, 4, 5, 7)] + [(SO3, (n, n, n)) for n in (1, 3, 4)]
GRIDS += [pytest.param(SO3, (5, 5, 5), marks=pytest.mark.slow)]
BOXES = [(SO2, (3, 5)), (SO2, (1, 4)), (SO3, (3, 3, 5)), (SO3, (2, 3, 4)), (SO3, (5, 5, 1))]


def harmonics_of(group, largest):
    return range(-largest, largest + 1) if group is SO2 else range(largest + 1)


def moved(values, R):
    """Kernel values at R z for every voxel z; R must map the box to itself."""
    size = np.array(values.shape[2:])
    index = np.indices(size).reshape(len(size), -1) - (size[:, None] - 1) / 2
    target = (R.numpy() @ index + (size[:, None] - 1) / 2).round().astype(int)
    return values[(..., *target)]


@cache
def grid_irreps(group, harmonic):
    """Grid rotations with their irreps."""
    return [(R, torch.from_numpy(oracles.irrep(group, harmonic, R.numpy()))) for R in group.grid_rotations()]


def assert_steerable(source, harmonic):
    """For all grid rotations that map the box to itself."""
    values, size = source.functions(harmonic).values, torch.tensor(source.size).double()
    for R, rho in grid_irreps(source.group, harmonic):
        if torch.equal(R.abs() @ size, size):
            expected = torch.einsum("om,kmz->koz", rho.to(values), values.flatten(2))
            case = f"{source.family}, harmonic {harmonic}"
            assert_close(moved(values, R), expected, rtol=0, atol=1e-10, msg=lambda text, case=case: f"{case}: {text}")


@pytest.mark.parametrize(("group", "size"), GRIDS, ids=str)
def test_all_families_are_exact_under_grid_rotations(group, size):
    for family in FAMILIES:
        source = VoxelKernels(group, size, family=family, max_impurity=1.0)
        assert len(source.rotations) == len(group.grid_rotations())
        for harmonic in harmonics_of(group, 6 if group is SO2 else 4):
            assert_steerable(source, harmonic)


@pytest.mark.parametrize(("group", "size"), BOXES, ids=str)
def test_box_is_exact_under_its_rotations(group, size):
    keeping = [R for R in group.grid_rotations() if (R.abs() @ torch.tensor(size).double()).tolist() == list(size)]
    for family in FAMILIES:
        source = VoxelKernels(group, size, family=family, max_impurity=1.0)
        assert len(source.rotations) == len(keeping) > 1
        for harmonic in harmonics_of(group, 3):
            assert_steerable(source, harmonic)


@pytest.mark.parametrize(("group", "size"), [(SO2, (5, 5)), (SO3, (5, 5, 5))], ids=str)
def test_number_of_purest_kernels(group, size):
    source = VoxelKernels(group, size, family="purest", max_impurity=1e-2)
    assert [len(source.functions(J).values) for J in range(7)] == [3, 2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_max_impurity_selects_kernels_by_purity(group, family):
    size = (5,) * group.dim
    all_kernels = VoxelKernels(group, size, family=family, max_impurity=1.0)
    for max_impurity, harmonic in itertools.product((1e-3, 1e-2, 0.3), range(4)):
        kept = VoxelKernels(group, size, family=family, max_impurity=max_impurity).functions(harmonic)
        values, purity = all_kernels.functions(harmonic)[:2]
        pure = 1 - purity <= max_impurity
        assert_close(kept.values, values[pure], rtol=0, atol=1e-12)
        assert_close(kept.purity, purity[pure], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_normalizations_differ_by_scale_only(group, family):
    """test_purity shows that unit response is unit variance on the spectrum."""
    size = (4,) * group.dim
    for harmonic in range(4):
        unit = VoxelKernels(group, size, family=family).functions(harmonic)
        response = VoxelKernels(group, size, family=family, normalization="response").functions(harmonic)
        lengths = unit.values.abs().square().flatten(1).sum(1)
        assert_close(lengths, torch.ones_like(lengths), rtol=1e-12, atol=0)
        scale = response.values.flatten(1).norm(dim=1)[(..., *[None] * (group.dim + 1))]
        assert_close(response.values, scale * unit.values, rtol=0, atol=1e-10)
        assert_close(response.purity, unit.purity, rtol=0, atol=1e-12)


def test_sampled_kernels_are_rings_at_voxel_centers(group):
    source = VoxelKernels(group, (5,) * group.dim, family="sampled", max_impurity=1.0, radii=(1.0, 1.7))
    points = voxel_coordinates(source.size).flatten(0, -2).numpy()
    r = np.linalg.norm(points, axis=-1)
    Y = oracles.harmonics(group, 2, points / np.where(r > 0, r, 1)[:, None]) * (r > 0)[:, None]
    for kernel, radius in zip(source.functions(2).values, (1.0, 1.7), strict=True):
        ring = np.exp(-((r - radius) ** 2) / (2 * source.rings.width**2))[:, None] * Y
        assert_close(kernel.flatten(1).mT, torch.from_numpy(ring / np.linalg.norm(ring)), rtol=0, atol=1e-12)


def ring_response(source, frequencies, step):
    """Response of the first continuous ring of degree 1 to plane waves, by summing it on a fine grid."""
    reach = source.rings.radii[0] + 4 * source.rings.width
    count = 2 * int(reach / step) + 1
    fine = step * voxel_coordinates((count,) * source.group.dim).flatten(0, -2).numpy()
    r = np.linalg.norm(fine, axis=-1)
    Y = oracles.harmonics(source.group, 1, fine / np.where(r > 0, r, 1)[:, None]) * (r > 0)[:, None]
    profile = np.exp(-((r - source.rings.radii[0]) ** 2) / (2 * source.rings.width**2))
    return np.exp(1j * frequencies @ fine.T) @ (profile[:, None] * Y)


def test_fitted_kernels_respond_like_continuous_ring(group):
    """On signals of the spectrum their error is less than a third of that of sampled kernels."""
    frequencies = torch.randn(400 if group is SO2 else 150, group.dim).numpy() / np.sqrt(
        2
    )  # drawn from the Gaussian spectrum
    errors = {}
    for family in ("sampled", "fitted"):
        source = VoxelKernels(group, (5,) * group.dim, family=family, radii=(1.0,), max_impurity=1.0)
        target = ring_response(source, frequencies, step=0.1 if group is SO2 else 0.25)
        waves = np.exp(1j * frequencies @ voxel_coordinates(source.size).flatten(0, -2).numpy().T)
        found = waves @ source.functions(1).values[0].flatten(1).mT.numpy()
        found *= np.vdot(found, target) / np.vdot(found, found)  # compare up to scale: kernels have unit norm
        errors[family] = np.linalg.norm(found - target) / np.linalg.norm(target)
    assert errors["fitted"] < 0.02
    assert errors["fitted"] < errors["sampled"] / 3


ROUNDED_SPACING = (1.0, 1 - 6e-8, 1.0)  # a cubic voxel after rounding to float32
CHANGES = {
    "rerun": ({}, 1e-9),
    "smoothing": ({"sigma": 1 + 1e-10}, 1e-4),
    "spacing": ({"spacing": ROUNDED_SPACING}, 1e-3),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["gaussian", "natural"])
def test_kernels_are_reproducible_and_stable(group, family, kind):
    """Signs and degenerate eigenvectors must not depend on rounding, or trained weights would not transfer."""

    def build(sigma=1.0, spacing=None):
        voxels._functions.cache_clear()
        voxels._forms.cache_clear()
        options = {
            "family": family,
            "spectrum": Spectrum(kind, sigma=sigma),
            "spacing": spacing and spacing[: group.dim],
        }
        return [VoxelKernels(group, (5,) * group.dim, **options).functions(harmonic).values for harmonic in range(5)]

    first = build()
    for change, (options, tolerance) in CHANGES.items():
        for one, other in zip(first, build(**options), strict=True):
            assert_close(other, one, rtol=0, atol=tolerance, msg=lambda text, change=change: f"{change}: {text}")


def test_negative_harmonics_are_complex_conjugates():
    for family in FAMILIES:
        source = VoxelKernels(SO2, (5, 5), family=family)
        for harmonic in range(1, 5):
            positive, negative = source.functions(harmonic), source.functions(-harmonic)
            assert_close(negative.values, positive.values.conj().resolve_conj(), rtol=0, atol=1e-10)
            assert_close(negative.purity, positive.purity, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_dilated_kernels_equal_plain_kernels(group, family):
    """The unit of the spectrum is the distance between samples, so dilation only changes the unit."""
    size = (5,) * group.dim
    dilated = VoxelKernels(group, size, dilation=2, family=family, max_impurity=1.0)
    plain = VoxelKernels(group, size, family=family, max_impurity=1.0)
    for harmonic in range(4):
        assert_steerable(dilated, harmonic)
        one, other = dilated.functions(harmonic), plain.functions(harmonic)
        assert_close(one.values, other.values, rtol=0, atol=1e-6)
        assert_close(one.purity, other.purity, rtol=0, atol=1e-8)


def test_kernel_of_one_voxel_has_harmonic_0_only(group):
    for family in FAMILIES:
        source = VoxelKernels(group, (1,) * group.dim, family=family)
        assert [len(source.functions(J).values) for J in range(3)] == [1, 0, 0]
        assert source.functions(0).values.flatten().abs().tolist() == pytest.approx([1.0])


BAD_OPTIONS = [
    ({"size": (5,)}, "has . sizes, integers >= 1, got"),
    ({"size": (0, 5, 5)}, "integers >= 1, got"),
    ({"size": (5.0, 5, 5)}, "integers >= 1, got"),
    ({"spacing": (1.0,)}, r"lengths > 0, got \(1.0,\)"),
    ({"spacing": (1.0, 0.0, 1.0)}, "lengths > 0, got"),
    ({"spacing": (1.0, -2.0, 1.0)}, "lengths > 0, got"),
    ({"spacing": (1.0, float("nan"), 1.0)}, "lengths > 0, got"),
    ({"spacing": (1.0, float("inf"), 1.0)}, "lengths > 0, got"),
    ({"dilation": 0}, "dilation of a kernel is an integer >= 1, got 0"),
    ({"dilation": 1.5}, "dilation of a kernel is an integer >= 1, got 1.5"),
    ({"family": "purer"}, r"expected one of \('sampled', 'fitted', 'purest'\), got 'purer'"),
    ({"normalization": "max"}, r"expected one of \('norm', 'response'\), got 'max'"),
    ({"max_impurity": 0.0}, "max_impurity is an impurity, above 0 and at most 1, got 0.0"),
    ({"max_impurity": 1.5}, "max_impurity is an impurity"),
    ({"max_impurity": float("nan")}, "max_impurity is an impurity"),
    ({"size": (99, 99, 99)}, "at most 6000 voxels, got"),
]


def test_invalid_option_raises(group, unchecked):
    for options, message in BAD_OPTIONS:
        fitting = {name: value[: group.dim] if isinstance(value, tuple) else value for name, value in options.items()}
        with raises(fitting, message):
            VoxelKernels(group, **{"size": (5,) * group.dim, **fitting})


def test_invalid_spectrum_raises(unchecked):
    for options, message in (
        ({"kind": "pink"}, r"one of \('gaussian', 'natural'\), got 'pink'"),
        ({"sigma": 0.0}, "sigma of 0.1 to 100 voxels, got 0.0"),
        ({"noise": 0.0}, "variance >= 1e-9"),
    ):
        with raises(options, message):
            Spectrum(**options)
