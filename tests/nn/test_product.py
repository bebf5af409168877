"""Tensor product against the explicit sum over couplings."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, features, gapped, real, vectors
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("float64")


def couplings(group, out, degrees):
    """All pairs (harmonic, degree) of ``degrees`` that couple to degree ``out``, with their coefficients."""
    if group is SO2:  # a_J b_l has degree J + l; the complex conjugate of a_J has degree -J
        pairs = [(out - l, l) for l in degrees if abs(out - l) in degrees]
        return {pair: np.ones((1, 1, 1)) for pair in pairs}
    pairs = [(J, l) for J, l in itertools.product(degrees, repeat=2) if abs(J - l) <= out <= J + l]
    return {(J, l): SO3.coupling(out, J, l).numpy() for J, l in pairs}


def product_by_definition(layer, x):
    group, degrees = layer.in_type.group, layer.in_type.degrees
    a, b = (complex_pieces(layer.factors, mixture(x)) for mixture in (layer.left, layer.right))
    pieces = []
    for out in layer.out_type.degrees:
        found = couplings(group, out, degrees)
        total = 0
        for (J, l), C in found.items():
            left = a[J] if J >= 0 else a[-J].conj()
            scale = np.sqrt(group.irrep_dim(out) / (layer.in_type.parts * len(found) * group.irrep_dim(J)))
            total = total + scale * np.einsum("ohi,bhc...,bic...->boc...", C, left, b[l])
        pieces.append(total)
    half = np.concatenate([p.reshape(len(x), -1, *x.shape[2:]) for p in pieces], axis=1)
    return layer.mix(torch.from_numpy(half if layer.in_type.real else np.concatenate([half.real, half.imag], axis=1)))


@pytest.mark.parametrize("out", [features, gapped, vectors, real])
@pytest.mark.parametrize("into", [features, gapped, vectors, real])
def test_tensor_product_is_the_sum_over_all_couplings(group, into, out):
    """On fields with and without spatial axes."""
    if not all(couplings(group, degree, into(group).degrees) for degree in out(group).degrees):
        with pytest.raises(ValueError, match=r"no two degrees of .* couple to degree"):
            sf.nn.TensorProduct(into(group), out(group))
        return
    layer = sf.nn.TensorProduct(into(group), out(group))
    for size in ((), 2):
        x = layer.in_type.randn(2, size)
        assert_close(layer(x), product_by_definition(layer, x), rtol=0, atol=1e-12)


def test_copies_option_sets_multiplicities(group):
    layer = sf.nn.TensorProduct(features(group), features(group), copies=5)
    assert layer.factors == FieldType(group, (5, 5, 5))
    x = layer.in_type.randn(2)
    assert_close(layer(x), product_by_definition(layer, x), rtol=0, atol=1e-12)
    assert sf.nn.TensorProduct(features(group), features(group)).factors == FieldType(group, (2, 2, 2))


def test_products_of_vectors_are_inner_and_cross_product():
    """In 3D, with identity linear maps: known products of vectors."""
    layer = sf.nn.TensorProduct(FieldType(SO3, "1x1"), FieldType(SO3, "1x0+1x1"))
    for linear in (layer.left, layer.right, layer.mix):
        for weight in linear.weights:
            weight.data.copy_(torch.tensor([1.0, 0.0]).view(2, 1, 1))
    real = torch.randn(4, 3)
    imaginary = torch.randn(4, 3)
    y = layer(torch.cat([real, imaginary], dim=1))
    a = torch.complex(real, imaginary)
    scalar, vector = torch.complex(y[:, 0], y[:, 4]), y[:, 1:4]
    assert_close(scalar.abs(), (a * a).sum(dim=1).abs() / np.sqrt(6))  # sqrt(1 / 2 / 3), and unit Frobenius norm
    assert_close(vector, torch.zeros(4, 3))  # a x a


def test_tensor_product_keeps_unit_variance(group):
    for multiplicities in ((16, 16, 16), (0, 16), (8, 8, 8, 8)):
        in_type = FieldType(group, multiplicities)
        out_type = FieldType(group, (16, 16, 16)) if len(multiplicities) > 2 else FieldType(group, (16, 0, 16))
        layer = sf.nn.TensorProduct(in_type, out_type, copies=32)
        powers = []
        for _ in range(8):
            for linear in (layer.left, layer.right, layer.mix):
                linear.reset_parameters()
            powers.append([p.square().mean().item() for p in out_type.split(layer(in_type.randn(64)))])
        for power in np.mean(powers, axis=0):
            assert power == pytest.approx(1, rel=0.3), multiplicities


def test_tensor_product_is_quadratic(group):
    layer = sf.nn.TensorProduct(features(group), gapped(group))
    x = layer.in_type.randn(2, 2)
    assert_close(layer(3 * x), 9 * layer(x))
    assert_close(layer(-x), layer(x))
    assert not layer(0 * x).any()


def test_constants_are_exact_in_float64(group):
    torch.set_default_dtype(torch.float32)
    layer = sf.nn.TensorProduct(features(group), gapped(group)).double()
    torch.set_default_dtype(torch.float64)
    twin = sf.nn.TensorProduct(features(group), gapped(group))
    twin.load_state_dict(layer.state_dict())
    x = layer.in_type.randn(2)
    assert_close(layer(x), twin(x), rtol=0, atol=1e-14)
