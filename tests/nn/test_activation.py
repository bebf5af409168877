"""Norm and gated nonlinearities against their formulas in complex numbers."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import oracles
import steerformer as sf
from nn.layers import complex_pieces, features, gapped, image, randomized, vectors

pytestmark = pytest.mark.usefixtures("float64")


def paper_norm_relu(f, b):
    r"""$\sigma(f(x,\rho)) = \mathrm{ReLU}(\|f(x,\rho)\|_2 + b) / \|f(x,\rho)\|_2\; f(x,\rho)$, norm over orders."""
    norm = np.sqrt((np.abs(f) ** 2).sum(axis=1, keepdims=True))
    return np.maximum(norm + b, 0) / norm * f


@pytest.mark.parametrize("of", [features, gapped, vectors, image])
def test_norm_relu_matches_the_paper(group, of):
    for size in ((), 3):
        layer = randomized(sf.nn.NormReLU(of(group), bias=-1.5))
        x = layer.in_type.randn(16, size)
        before, after = complex_pieces(layer.in_type, x), complex_pieces(layer.out_type, layer(x))
        biases = np.split(layer.bias.detach().numpy(), np.cumsum(layer.in_type.multiplicities)[:-1])
        zeroed = 0
        for degree, b in enumerate(biases):
            expected = paper_norm_relu(before[degree], b.reshape(-1, *[1] * (x.ndim - 2)))
            np.testing.assert_allclose(after[degree], expected, rtol=0, atol=1e-12, err_msg=f"degree {degree}")
            zeroed += (expected == 0).sum()
        assert zeroed, size  # the bias is large enough to matter


def test_norm_relu_is_identity_at_bias_0_and_zero_at_large_negative_bias(group):
    field_type = gapped(group)
    x = field_type.randn(3, 3)
    assert_close(sf.nn.NormReLU(field_type)(x), x, rtol=0, atol=1e-14)
    assert not sf.nn.NormReLU(field_type, bias=-100.0)(x).any()


def test_norm_relu_keeps_directions(group):
    layer = randomized(sf.nn.NormReLU(gapped(group), bias=-0.5))
    x = layer.in_type.randn(3)
    for before, after in zip(layer.in_type.split(x), layer.out_type.split(layer(x)), strict=True):
        inner = (before * after).sum(dim=(1, 2))
        assert_close(inner, before.flatten(1, 2).norm(dim=1) * after.flatten(1, 2).norm(dim=1))


def test_norm_relu_has_one_bias_per_copy(group):
    field_type = gapped(group)
    layer = sf.nn.NormReLU(field_type, bias=0.25)
    assert layer.bias.shape == (field_type.copies,)
    assert (layer.bias == 0.25).all()


def test_norm_relu_is_bounded_for_short_vectors(group):
    """Norms below 1e-6 count as 1e-6: the factor is at most (1e-6 + 0.5) / 1e-6."""
    for length in (0.0, 1e-9, 1e-7, 1e-5):
        layer = sf.nn.NormReLU(gapped(group), bias=0.5)
        x = layer.in_type.randn(3)
        norms = torch.cat([piece.flatten(1, 2).norm(dim=1) for piece in layer.in_type.split(x)], dim=1)
        x = x * (length / norms.max())
        assert layer(x).abs().max() <= 0.5 + 2 * length, length
        x.requires_grad_()
        layer(x).sum().backward()
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("of", [features, gapped, image])
def test_gated_multiplies_by_sigmoid_of_convolution(group, of):
    for kernel_size in (1, 3):
        layer = randomized(sf.nn.Gated(of(group), kernel_size=kernel_size))
        x = layer.in_type.randn(2, 4)
        scalars = layer.gates(x) + layer.bias.view(-1, *[1] * group.dim)
        assert scalars.shape[1] == layer.in_type.copies
        gates = (1 / (1 + np.exp(-scalars.detach().numpy()))).astype(complex)
        before, after = complex_pieces(layer.in_type, x), complex_pieces(layer.out_type, layer(x))
        start = 0
        for degree, copies in enumerate(layer.in_type.multiplicities):
            expected = gates[:, None, start : start + copies] * before[degree]
            np.testing.assert_allclose(after[degree], expected, rtol=0, atol=1e-12, err_msg=f"degree {degree}")
            start += copies


def test_gates_are_equivariant_scalars(group):
    """Gates rotate as a real image does, so their product with features rotates as the features do."""
    layer = randomized(sf.nn.Gated(features(group)))
    assert layer.gates.out_type.real
    x = layer.in_type.randn(1, 4)
    for R in group.grid_rotations():
        found = layer.gates(oracles.rotate(layer.in_type, x, R))
        assert_close(found, oracles.rotate(layer.gates.out_type, layer.gates(x), R), rtol=0, atol=1e-10)


def test_gated_passes_options_to_conv(group):
    options = {"spacing": (1.0, 2.0, 3.0)[: group.dim], "max_impurity": 0.2}
    layer = sf.nn.Gated(features(group), kernel_size=(3, 5, 3)[: group.dim], kernel_family="purest", **options)
    source = layer.gates.basis.source
    assert (source.spacing, source.max_impurity) == (options["spacing"], 0.2)
    assert (source.family, source.size) == ("purest", (3, 5, 3)[: group.dim])
