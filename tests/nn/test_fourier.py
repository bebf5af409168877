"""Fourier nonlinearity against explicit sums over directions and exact integrals."""

import itertools

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.testing import assert_close

import oracles
import steerformer as sf
from measure import Contestant, peak_memory
from nn.layers import complex_pieces, features, gapped, vectors
from steerformer import SO2, SO3, FieldType
from steerformer.nn import fourier_blocks
from steerformer.testing import blobs, equivariance_error

pytestmark = pytest.mark.usefixtures("float64")
MULTIPLICITIES = [(5,), (4, 2), (4, 2, 1), (2, 4, 1), (0, 3), (1, 2, 0, 1), (3, 1, 2, 2), (2, 2, 2), (3, 3)]
"""Decreasing, equal, increasing, and with gaps."""


def relu_on_directions(field_type, x, nodes, share):
    r"""$u(n) = \sum_\ell \sqrt{d_\ell}\,Y_\ell(n)^\dagger f_\ell$, a ReLU on both parts, and the integral back."""
    group, before = field_type.group, complex_pieces(field_type, x)
    Y = {d: np.sqrt(group.irrep_dim(d)) * oracles.harmonics(group, d, nodes) for d in before}  # direction, order
    most = max(field_type.multiplicities)
    u = np.zeros((len(x), len(nodes), most, *x.shape[2:]), dtype=complex)
    for degree, f in before.items():
        u[:, :, : f.shape[2]] += np.einsum("nm,bmc...->bnc...", Y[degree].conj(), f)
    u = np.maximum(u.real, 0) + 1j * np.maximum(u.imag, 0)
    back = {d: np.einsum("n,nm,bnc...->bmc...", share, Y[d], u) for d in before}
    return {degree: back[degree][:, :, : f.shape[2]] for degree, f in before.items()}


def packed(pieces):
    """Inverse of ``complex_pieces``."""
    whole = np.concatenate([f.reshape(len(f), -1, *f.shape[3:]) for f in pieces.values() if f.size], axis=1)
    return torch.from_numpy(np.concatenate([whole.real, whole.imag], axis=1))


def relu_of_each_copy(field_type, x, oversampling):
    """Copy by copy, each with the degrees that it has, on the documented grid of directions."""
    group, pieces = field_type.group, complex_pieces(field_type, x)
    results = {degree: np.empty_like(f) for degree, f in pieces.items()}
    for copy in range(max(field_type.multiplicities)):
        degrees = [degree for degree, f in pieces.items() if f.shape[2] > copy]
        alone = FieldType(group, [int(degree in degrees) for degree in range(max(degrees) + 1)])
        function = packed({degree: pieces[degree][:, :, copy : copy + 1] for degree in degrees})
        if group is SO3 and degrees == [0, 1]:
            nodes, share = oracles.directions(group, 128)
        else:
            resolved = max(min(max(degrees) + 1, max(field_type.degrees)), 1)
            nodes, share = (values.numpy() for values in group.direction_grid(oversampling * resolved))
        for degree, f in relu_on_directions(alone, function, nodes, share).items():
            if degree in degrees:
                results[degree][:, :, copy : copy + 1] = f
    return packed(results)


@pytest.mark.parametrize("multiplicities", MULTIPLICITIES, ids=str)
def test_fourier_relu_matches_sum_over_directions(group, multiplicities):
    field_type = FieldType(group, multiplicities)
    has_integral = group is SO3 and any(
        [degree for degree, count in enumerate(multiplicities) if count > copy] == [0, 1]
        for copy in range(max(multiplicities))
    )
    for oversampling in (2, 3, 4):
        x = field_type.randn(2, 3)
        found = sf.nn.FourierReLU(field_type, oversampling=oversampling)(x)
        expected = relu_of_each_copy(field_type, x, oversampling)
        assert_close(found, expected, rtol=0, atol=1e-3 if has_integral else 1e-12)  # 128 directions are not all


@pytest.mark.parametrize("multiplicities", MULTIPLICITIES, ids=str)
def test_real_fields_are_the_real_part_of_complex_ones(multiplicities):
    real, whole = FieldType(SO3, multiplicities, real=True), FieldType(SO3, multiplicities)
    x = real.randn(2, 3)
    found = sf.nn.FourierReLU(real)(x)
    expected, imaginary = sf.nn.FourierReLU(whole)(torch.cat([x, torch.zeros_like(x)], dim=1)).chunk(2, dim=1)
    assert_close(found, expected, rtol=0, atol=1e-12)
    assert not imaginary.any()


def test_relu_of_real_scalars_is_that_of_torch(group):
    image = FieldType.image(group, 3)
    x = image.randn(2, 4)
    assert torch.equal(sf.nn.FourierReLU(image)(x), torch.relu(x))


@pytest.mark.parametrize("of", [features, gapped, vectors])
def test_equal_multiplicities_share_one_grid(group, of):
    for oversampling in (2, 4):
        layer = sf.nn.FourierReLU(of(group), oversampling=oversampling)
        nodes, share = group.direction_grid(oversampling * max(layer.in_type.degrees))
        x = layer.in_type.randn(2, 3)
        expected = relu_on_directions(layer.in_type, x, nodes.numpy(), share.numpy())
        for degree, found in complex_pieces(layer.out_type, layer(x)).items():
            np.testing.assert_allclose(found, expected[degree], rtol=0, atol=1e-12, err_msg=f"{layer}")


def test_closed_form_is_the_integral_over_the_sphere():
    """Along b the coordinate of uniform directions is uniform, so both integrals are one-dimensional."""
    layer = sf.nn.FourierReLU(FieldType(SO3, (1, 1)))
    for scalar, length in ((0.3, 1.0), (-0.3, 1.0), (2.0, 1.0), (-2.0, 1.0), (0.0, 1.0), (1.0, 0.0), (-1.0, 0.0)):
        direction = torch.nn.functional.normalize(torch.randn(3), dim=0)
        x = torch.cat([torch.tensor([scalar]), length * direction, torch.zeros(4)])[None]
        radius = 3**0.5 * length
        kink = [-scalar / radius] if radius > abs(scalar) else None
        mean = quad(lambda t: max(scalar + radius * t, 0) / 2, -1, 1, points=kink)[0]  # noqa: B023
        along = quad(lambda t: t * max(scalar + radius * t, 0) / 2, -1, 1, points=kink)[0]  # noqa: B023
        expected = torch.cat([torch.tensor([mean]), 3**0.5 * along * direction, torch.zeros(4)])[None]
        assert_close(layer(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("of", [features, gapped])
def test_fourier_relu_converges_to_integral_over_directions(group, of):
    x = of(group).randn(8)
    exact = relu_on_directions(of(group), x, *oracles.directions(group, 256 if group is SO2 else 96))
    exact = np.concatenate([piece.reshape(8, -1) for piece in exact.values()], axis=1)

    def error(oversampling):
        found = complex_pieces(of(group), sf.nn.FourierReLU(of(group), oversampling=oversampling)(x))
        found = np.concatenate([piece.reshape(8, -1) for piece in found.values()], axis=1)
        return np.linalg.norm(found - exact) / np.linalg.norm(exact)

    coarse, medium, fine = (error(oversampling) for oversampling in (2, 4, 16))
    assert fine < medium < coarse
    assert fine < 0.02


def test_positive_functions_are_unchanged(group):
    """The quadrature is exact up to twice the largest degree, so both transforms together are the identity."""
    field_type = FieldType(group, (2, 2, 2))
    for oversampling in (2, 3, 4):
        x = 0.05 * field_type.randn(3, 2)
        for part in field_type.split(x)[0].unbind(dim=1):
            part.add_(10.0)
        assert_close(sf.nn.FourierReLU(field_type, oversampling=oversampling)(x), x, rtol=0, atol=1e-12)


def test_negative_functions_become_zero(group):
    field_type = FieldType(group, (2, 2, 2))
    x = 0.05 * field_type.randn(3, 2)
    for part in field_type.split(x)[0].unbind(dim=1):
        part.sub_(10.0)
    assert not sf.nn.FourierReLU(field_type)(x).any()


def test_error_at_any_rotation_decreases_with_oversampling(group):
    field_type = FieldType(group, (4, 4, 4))
    x = field_type.randn(64)
    rotations = [group.random_rotation() for _ in range(6)]

    def error(oversampling):
        layer = sf.nn.FourierReLU(field_type, oversampling=oversampling)
        y = layer(x)
        errors = [(layer(field_type.rotate(x, R)) - field_type.rotate(y, R)).norm() / y.norm() for R in rotations]
        return torch.stack(errors).mean().item()

    errors = [error(oversampling) for oversampling in (2, 4, 8, 16)]
    assert all(finer < 0.6 * coarser for coarser, finer in itertools.pairwise(errors))
    assert errors[1] < 0.1
    assert errors[-1] < 0.01


@pytest.mark.parametrize("multiplicities", MULTIPLICITIES, ids=str)
def test_fourier_relu_is_positively_homogeneous(group, multiplicities):
    """Also at scales whose squares leave the range of float32."""
    layer = sf.nn.FourierReLU(FieldType(group, multiplicities)).float()
    x = layer.in_type.randn(2, 3, dtype=torch.float32)
    for scale in (1e-4, 2.0, 1e10, 1e25):
        assert_close(layer(scale * x) / scale, layer(x), rtol=1e-5, atol=1e-6)
    assert not layer(torch.zeros_like(x)).any()


def test_fourier_relu_of_scalars_is_relu(group):
    field_type = FieldType(group, (5,))
    x = field_type.randn(2, 3)
    assert_close(sf.nn.FourierReLU(field_type)(x), torch.relu(x), rtol=0, atol=1e-12)


def test_constants_are_exact_in_float64(group):
    torch.set_default_dtype(torch.float32)
    layer = sf.nn.FourierReLU(gapped(group)).double()
    torch.set_default_dtype(torch.float64)
    x = layer.in_type.randn(2, 3)
    assert_close(layer(x), sf.nn.FourierReLU(gapped(group))(x), rtol=0, atol=1e-14)
    assert not layer.state_dict()


GRIDS = {SO2: [(8, 4, 2), (8, 4, 2, 1)], SO3: [(4, 2, 1), (8, 4, 2), (16, 8, 4, 2)]}


def test_grid_of_each_copy_keeps_the_error_at_any_rotation(group):
    """The finest grid for all copies is hardly better, with white and with decreasing coefficients."""
    rotations = [group.random_rotation() for _ in range(6)]
    for multiplicities, oversampling, decay in itertools.product(GRIDS[group], (2, 3), (0, 1)):
        field_type = FieldType(group, multiplicities)
        x = field_type.randn(48)
        for degree, piece in zip(field_type.degrees, field_type.split(x), strict=True):
            piece /= (1 + degree) ** decay
        finest = [values.numpy() for values in group.direction_grid(oversampling * max(field_type.degrees))]

        def error(function, field_type=field_type, x=x):
            y = function(x)
            found = [function(field_type.rotate(x, R)) - field_type.rotate(y, R) for R in rotations]
            return torch.stack([difference.norm() / y.norm() for difference in found]).mean().item()

        ours = error(sf.nn.FourierReLU(field_type, oversampling=oversampling))
        on_finest = error(lambda x: packed(relu_on_directions(field_type, x, *finest)))  # noqa: B023
        assert ours < 1.3 * on_finest, (multiplicities, oversampling, decay)


def test_closed_form_is_exact_at_every_rotation():
    exact, sampled = (sf.nn.FourierReLU(FieldType(SO3, n), oversampling=2) for n in ((4, 2), (4, 2, 1)))
    for layer in (exact, sampled):
        R, x = SO3.random_rotation(), layer.in_type.randn(16)
        difference = layer(layer.in_type.rotate(x, R)) - layer.out_type.rotate(layer(x), R)
        error = (difference.norm() / layer(x).norm()).item()
        assert error < 1e-12 if layer is exact else error > 1e-2


def test_error_on_smooth_scenes_is_small(group):
    """Functions of copies with few degrees have coarser grids, on which smooth scenes are still resolved."""
    field_type = FieldType(group, (8, 4, 2))
    layer = sf.nn.FourierReLU(field_type, oversampling=3)
    scene = blobs(field_type, batch=8, sigma=2.0)
    assert equivariance_error(layer, group.random_rotation(), scene=scene, size=5).total < 0.08


@pytest.mark.parametrize("multiplicities", MULTIPLICITIES, ids=str)
@pytest.mark.parametrize("block", [8, 100, 1000, fourier_blocks._BLOCK])
def test_blocks_match_composed_operations(group, multiplicities, block, monkeypatch):
    """Values and gradients, for blocks of several samples, of one, and of part of one."""
    monkeypatch.setattr(fourier_blocks, "_BLOCK", block)
    layer = sf.nn.FourierReLU(FieldType(group, multiplicities), oversampling=2)
    x = layer.in_type.randn(5, 3).requires_grad_()
    found, expected = layer(x), composed(layer, x)
    assert_close(found, expected, rtol=0, atol=1e-12)
    grad = torch.randn_like(x)
    assert_close(*(torch.autograd.grad(y, x, grad)[0] for y in (found, expected)), rtol=0, atol=1e-12)


def composed(layer, x):
    return fourier_blocks.composed_relu(x, layer.in_type, [layer._with_matrices(copies, x) for copies in layer._sets])


def test_second_derivatives_match_composed_operations(group):
    for multiplicities in ((4, 2, 1), (3, 2)):
        layer = sf.nn.FourierReLU(FieldType(group, multiplicities))
        x = layer.in_type.randn(2, 3).requires_grad_()
        second = []
        for y in (layer(x), composed(layer, x)):
            (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
            second.append(torch.autograd.grad(first.square().sum(), x)[0])
        assert_close(*second)
        assert second[0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_close(group, dtype):
    layer = sf.nn.FourierReLU(FieldType(group, (4, 2, 1))).to(dtype)
    x = layer.in_type.randn(2, 4).to(dtype).requires_grad_()
    y = layer(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert_close(y.double(), layer.double()(x.detach().double()), rtol=0.05, atol=0.05)


def test_memory_formats_agree(group):
    layer = sf.nn.FourierReLU(FieldType(group, (4, 2, 1)))
    x = layer.in_type.randn(2, 4)
    last = x.to(memory_format=torch.channels_last if group is SO2 else torch.channels_last_3d)
    sliced = torch.cat([x, x], dim=2)[:, :, :4]
    for other in (last, sliced):
        assert not other.is_contiguous()
        assert torch.equal(layer(other), layer(x))
    for few in (x[:0], x[:, :, :0]):
        assert layer(few).shape == few.shape


def test_values_at_directions_are_never_all_in_memory(group):
    """Peak memory of forward and backward, relative to input and output; the function values alone take 5 times it."""
    layer = sf.nn.FourierReLU(FieldType(group, (8, 8, 8) if group is SO2 else (4, 4, 4)), oversampling=4).float()
    x = layer.in_type.randn(4, 128 if group is SO2 else 28, dtype=torch.float32).requires_grad_()
    peak = peak_memory(Contestant("", lambda: layer(x), True).run)
    assert peak < 3 * 2 * x.nbytes
    assert peak_memory(Contestant("", lambda: composed(layer, x), True).run) > 2 * peak
