"""Equivariance tests themselves: they pass equivariant layers and fail others."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oracles
from steerformer import SO2, SO3, FieldType
from steerformer.fields import voxel_coordinates
from steerformer.kernels import KernelBasis, VoxelKernels
from steerformer.testing import EquivarianceError, Scene, assert_equivariant, blobs, equivariance_error

CONVOLVE = {2: F.conv2d, 3: F.conv3d}


class Convolution(nn.Module):
    """Minimal steerable convolution: a basis, weights, and torch's convolution without padding."""

    def __init__(self, in_type, out_type, size=3, **options):
        super().__init__()
        self.in_type, self.out_type = in_type, out_type
        self.basis = KernelBasis(in_type, out_type, VoxelKernels(in_type.group, (size,) * in_type.group.dim, **options))
        self.weights = nn.Parameter(torch.randn(self.basis.weight_parts, self.basis.num_weights))

    def kernel(self):
        return self.basis(self.weights)

    def forward(self, x):
        return CONVOLVE[self.in_type.group.dim](x, self.kernel())


class OneSignFlipped(Convolution):
    """Steerable except for one flipped sign: the imaginary part of one order of the input's degree 1."""

    def kernel(self):
        flip = torch.ones(self.in_type.channels).to(self.weights)
        flip[self.in_type.channels // 2 + self.in_type.group.irrep_dim(1)] = -1  # after the scalar
        return super().kernel() * flip.view(-1, *[1] * self.in_type.group.dim)


class HarmonicNegated(Convolution):
    """Kernel of the mirrored grid: in 2D angular frequency k_in - k_out instead of k_out - k_in."""

    def kernel(self):
        return super().kernel().flip(2)


class Plain(nn.Module):
    def __init__(self, in_type, out_type):
        super().__init__()
        self.in_type, self.out_type = in_type, out_type
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[in_type.group.dim]
        self.layer = convolution(in_type.channels, out_type.channels, 3)

    def forward(self, x):
        return self.layer(x)


def features(group):
    return FieldType(group, (1, 1, 1))


def any_rotation(group):
    return SO2.rotation(math.radians(17)) if group is SO2 else SO3.rotation(math.radians(17), (1.0, -2.0, 0.5))


@pytest.mark.parametrize("family", ["sampled", "fitted", "purest"])
def test_steerable_convolution_passes(group, family, unchecked):
    """Kernels of odd and even width, on even and on odd grids."""
    cases = ((3, 6), (3, 7), (4, 6), (4, 7)) if group is SO2 else ((3, 4), (4, 5))
    for in_type, (kernel_size, size) in itertools.product((FieldType.image(group, 2), features(group)), cases):
        layer = Convolution(in_type, features(group), kernel_size, family=family)
        assert_equivariant(layer, size=size, batch=1, tolerance=1e-10)


def test_steerable_convolution_passes_on_non_square_grid(group):
    layer = Convolution(features(group), features(group))
    assert_equivariant(layer, size=(4, 5, 6)[: group.dim], tolerance=1e-10)


def test_float32_error_is_rounding_error(group):
    layer = Convolution(features(group), features(group))
    x = layer.in_type.randn(2, 6)
    for R in group.grid_rotations():
        assert equivariance_error(layer, R, x=x).total < 1e-5


@pytest.mark.parametrize("make_layer", [Plain, OneSignFlipped, HarmonicNegated])
def test_non_equivariant_layer_fails(group, make_layer, unchecked):
    """Under rotations of the grid and at another angle."""
    layer = make_layer(features(group), features(group))
    with pytest.raises(
        AssertionError, match=rf"{make_layer.__name__} is not equivariant: relative error .* at rotation"
    ):
        assert_equivariant(layer, size=5)
    x = layer.in_type.randn(1, 5)
    assert max(equivariance_error(layer, R, x=x).total for R in group.grid_rotations()) > 0.05
    with pytest.raises(AssertionError, match="is not equivariant"):
        assert_equivariant(layer, rotations=[any_rotation(group)], size=5, tolerance=0.05)


def test_degrees_2_and_minus_2_differ_at_other_angles_only():
    """e^{2i theta} is real at multiples of 90 degrees, so complex conjugation commutes with grid rotations."""
    spins = FieldType(SO2, "1x2")

    class Conjugation(nn.Module):
        in_type = out_type = spins

        def forward(self, x):
            return x * torch.tensor([1.0, -1.0]).to(x).view(2, 1, 1)

    assert_equivariant(Conjugation(), size=5)
    with pytest.raises(AssertionError, match="is not equivariant"):
        assert_equivariant(Conjugation(), rotations=[any_rotation(SO2)], size=5, tolerance=0.1)


def test_error_at_other_angles_decreases_with_blob_size(group, float64):
    layer = Convolution(FieldType.image(group, 1), features(group), 5)
    small, medium, large = (
        equivariance_error(layer, any_rotation(group), scene=blobs(layer.in_type, sigma=sigma), size=5).total
        for sigma in (1.5, 3.0, 6.0)
    )
    assert large < medium < small < 0.1
    assert large < small / 4
    assert_equivariant(layer, rotations=[any_rotation(group)], size=5, tolerance=0.05)


def test_pointwise_layer_is_exact_at_any_angle(group, float64):
    """No interpolation error enters: only rounding remains."""
    field_type = features(group)
    pointwise = lambda x: x * x.square().sum(1, keepdim=True)  # noqa: E731
    error = equivariance_error(pointwise, any_rotation(group), in_type=field_type, out_type=field_type)
    assert error.total < 1e-13


def test_rotated_scene_is_the_formula_at_rotated_points(group, float64):
    r"""$[Rf](x) = \rho(R) f(R^{-1}x)$ with f summed blob by blob, on a grid with spacing."""
    field_type, R = features(group), group.random_rotation()
    scene = blobs(field_type, batch=2, count=5)
    size, spacing = (3, 4, 5)[: group.dim], (1.0, 2.0, 0.5)[: group.dim]
    found = scene.rotate(R).sample(size, spacing)
    points = voxel_coordinates(size, spacing).numpy() @ R.numpy()
    rho = oracles.channel_matrix(field_type, R.numpy())
    for n in range(2):
        pairs = zip(scene.centers[n].numpy(), scene.amplitudes[n].numpy(), strict=True)
        expected = sum(np.multiply.outer(rho @ a, oracles.blob(c, scene.sigma, points)) for c, a in pairs)
        np.testing.assert_allclose(found[n].numpy(), expected, rtol=0, atol=1e-12)


def test_blobs_follow_options(group):
    field_type = features(group)
    scene = blobs(field_type, batch=200, count=10, sigma=3.0, extent=5.0, seed=1, dtype=torch.float32)
    assert scene.centers.shape == (200, 10, group.dim)
    assert scene.amplitudes.shape == (200, 10, field_type.channels)
    assert scene.sample(3).dtype == torch.float32
    assert scene.centers.std().item() == pytest.approx(5.0, rel=0.1)
    assert scene.amplitudes.std().item() == pytest.approx(1.0, rel=0.1)
    assert torch.equal(blobs(field_type, seed=1).centers, blobs(field_type, seed=1).centers)
    assert not torch.equal(blobs(field_type, seed=1).centers, blobs(field_type, seed=2).centers)
    assert isinstance(scene.rotate(any_rotation(group)), Scene)


def test_sequential_types_come_from_its_ends(group):
    image, field_type = FieldType.image(group, 1), features(group)
    inner = nn.Sequential(nn.Identity(), Convolution(image, field_type))
    assert_equivariant(nn.Sequential(inner, nn.Identity(), Convolution(field_type, field_type)), size=7)
    assert_equivariant(nn.Sequential(nn.Identity()), in_type=image, out_type=image, size=5)


def test_errors_and_energies_of_degrees_add_up(group, float64):
    layer = Plain(features(group), FieldType(group, (2, 0, 1)))
    error = equivariance_error(layer, group.grid_rotations()[1], x=layer.in_type.randn(2, 5))
    assert set(error.per_degree) == set(error.energy) == {0, 2}
    assert sum(error.energy.values()) == pytest.approx(1)
    total = sum(share * error.per_degree[degree] ** 2 for degree, share in error.energy.items())
    assert error.total == pytest.approx(math.sqrt(total))


def test_error_is_the_relative_distance(group, float64):
    image = FieldType.image(group, 1)
    ramp = torch.linspace(-1, 1, 3).view(3, *[1] * (group.dim - 1)).expand(*[3] * group.dim)
    by_180_degrees = next(R for R in group.grid_rotations() if R[0, 0] == -1)
    x = torch.zeros(1, 1, *[3] * group.dim)
    error = equivariance_error(lambda x: x + ramp, by_180_degrees, x=x, in_type=image, out_type=image)
    assert error.total == pytest.approx(2)  # rotated by 180 degrees the ramp is its negative


def test_error_str():
    error = EquivarianceError(0.012, {0: 0.001, 2: 0.05}, {0: 0.94, 2: 0.06})
    assert str(error) == (
        "relative error 1.2e-02 (degree 0: 1.0e-03 (94% of the energy), degree 2: 5.0e-02 (6% of the energy))"
    )


def test_error_of_zero_output_is_0_or_inf(group):
    image = FieldType.image(group, 1)
    x, R = torch.zeros(1, 1, *[3] * group.dim), group.grid_rotations()[1]
    silent = equivariance_error(lambda x: 0 * x, R, x=x, in_type=image, out_type=image)
    assert (silent.total, silent.per_degree, silent.energy) == (0.0, {0: 0.0}, {0: 0.0})
    calls = iter([0.0, 1.0])
    jumpy = equivariance_error(lambda x: x + next(calls), R, x=x, in_type=image, out_type=image)
    assert jumpy.total == math.inf


@pytest.mark.parametrize("angle", ["grid", "any"])
def test_zero_output_fails(group, angle):
    """Zero is equivariant, but then nothing was tested."""
    layer = Convolution(features(group), features(group))
    rotations = None if angle == "grid" else [any_rotation(group)]
    assert_equivariant(layer, size=5, rotations=rotations, tolerance=2.0)
    torch.nn.init.zeros_(layer.weights)
    with pytest.raises(AssertionError, match=r"the output of Convolution is zero.*, so nothing was tested"):
        assert_equivariant(layer, size=5, rotations=rotations, tolerance=2.0)


def test_nan_output_fails(group):
    image = FieldType.image(group, 1)

    class Broken(nn.Module):
        def forward(self, x):
            return x * float("nan")

    with pytest.raises(AssertionError, match="is not equivariant"):
        assert_equivariant(Broken(), in_type=image, out_type=image, size=3)


def test_layer_is_not_modified(group):
    layer = Convolution(features(group), features(group)).train()
    assert_equivariant(layer, size=5)
    assert layer.training
    assert layer.weights.dtype == torch.float32


def test_invalid_arguments_raise(group):
    layer, x = Convolution(features(group), features(group)), features(group).randn(1, 5)
    with pytest.raises(ValueError, match=r"Identity has no in_type; pass in_type=FieldType\(\.\.\.\)"):
        assert_equivariant(nn.Identity())
    with pytest.raises(ValueError, match="Sequential has no out_type"):
        equivariance_error(nn.Sequential(nn.Identity()), any_rotation(group), in_type=features(group))
    with pytest.raises(ValueError, match="has no central voxel"):
        equivariance_error(layer, any_rotation(group), size=6)
    with pytest.raises(ValueError, match="only by rotations of the grid; pass a scene"):
        equivariance_error(layer, any_rotation(group), x=x)
    with pytest.raises(ValueError, match="orthogonal"):
        equivariance_error(layer, 2 * torch.eye(group.dim), x=x)


def test_layer_that_favors_one_axis_raises(group):
    image = FieldType.image(group, 1)
    by_90_degrees = next(R for R in group.grid_rotations() if R[0, 1] == -1)
    with pytest.raises(ValueError, match="check that the layer treats all spatial axes equally"):
        equivariance_error(lambda x: x[:, :, ::2], by_90_degrees, x=image.randn(1, 5), in_type=image, out_type=image)
