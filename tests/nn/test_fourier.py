"""Fourier nonlinearity against explicit sums over directions."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
import steerformer as sf
from nn.layers import complex_pieces, features, gapped, vectors
from steerformer import SO2, FieldType

pytestmark = pytest.mark.usefixtures("float64")


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


@pytest.mark.parametrize("of", [features, gapped, vectors])
def test_fourier_relu_matches_sum_over_directions(group, of):
    for oversampling in (2, 4):
        layer = sf.nn.FourierReLU(of(group), oversampling=oversampling)
        nodes, share = group.direction_grid(oversampling * max(layer.in_type.degrees))
        x = layer.in_type.randn(2, 3)
        expected = relu_on_directions(layer.in_type, x, nodes.numpy(), share.numpy())
        for degree, found in complex_pieces(layer.out_type, layer(x)).items():
            np.testing.assert_allclose(found, expected[degree], rtol=0, atol=1e-12, err_msg=f"{layer}")


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


def test_fourier_relu_is_positively_homogeneous(group):
    layer = sf.nn.FourierReLU(gapped(group))
    x = layer.in_type.randn(2, 3)
    assert_close(layer(2 * x), 2 * layer(x))


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
