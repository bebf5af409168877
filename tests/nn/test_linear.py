"""Linear layer: one complex matrix per degree."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, features, gapped, image, real, real_gapped, vectors
from steerformer import FieldType

pytestmark = pytest.mark.usefixtures("float64")


TYPES = {"features": features, "gapped": gapped, "vectors": vectors, "image": image}
PAIRS = [(a, b) for a in TYPES for b in TYPES if {a, b} != {"vectors", "image"}]
TYPES |= {"real": real, "real-gapped": real_gapped}
PAIRS += [("real", "real-gapped"), ("real", "features"), ("gapped", "real"), ("real", "image")]


@pytest.mark.parametrize(("into", "out"), PAIRS)
def test_linear_is_one_complex_matrix_per_degree(group, into, out):
    for size in ((), 3):
        layer = sf.nn.Linear(TYPES[into](group), TYPES[out](group))
        x = layer.in_type.randn(2, size)
        before, after = complex_pieces(layer.in_type, x), complex_pieces(layer.out_type, layer(x))
        weights = dict(zip(layer.shared, layer.weights, strict=True))
        assert set(weights) == {d for d in layer.in_type.degrees if layer.out_type.multiplicity(d)}
        for degree, found in after.items():
            if degree not in weights:
                assert not found.any()
                continue
            parts = weights[degree].detach().numpy()
            W = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
            expected = np.einsum("oc,bmc...->bmo...", W, before[degree])
            if layer.out_type.real:
                expected = expected.real
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=f"size {size}")


def test_linear_between_real_scalars_matches_torch(group):
    layer = sf.nn.Linear(FieldType.image(group, 3), FieldType.image(group, 5))
    x = torch.randn(4, 3)
    (weight,) = layer.weights
    assert weight.shape == (1, 5, 3)
    assert_close(layer(x), torch.nn.functional.linear(x, weight[0]))


@pytest.mark.parametrize("out", ["image", "features"])
@pytest.mark.parametrize("into", ["image", "features"])
def test_linear_keeps_unit_variance(group, into, out):
    kinds = {"image": FieldType.image(group, 40), "features": FieldType(group, (40, 40))}
    layer = sf.nn.Linear(kinds[into], kinds[out])
    y = layer(layer.in_type.randn(2000))
    for piece in layer.out_type.split(y)[: 1 if into == "image" else None]:
        assert piece.square().mean().item() == pytest.approx(1, rel=0.1)


def test_weights_have_documented_variance(group):
    layer = sf.nn.Linear(FieldType(group, (50, 20)), FieldType(group, (60, 60)))
    for weight, copies in zip(layer.weights, (50, 20), strict=True):
        assert weight.shape == (2, 60, copies)
        for part in weight:
            assert part.var().item() == pytest.approx(1 / (2 * copies), rel=0.15)


def test_linear_is_complex_linear(group):
    """The layer commutes with multiplication by i, which swaps both parts and changes a sign."""
    layer = sf.nn.Linear(features(group), gapped(group))
    x = layer.in_type.randn(2, 3)

    def times_i(y):
        re, im = y.chunk(2, dim=1)
        return torch.cat([-im, re], dim=1)

    assert_close(layer(times_i(x)), times_i(layer(x)))


def test_linear_acts_on_each_position(group):
    layer = sf.nn.Linear(features(group), gapped(group))
    x = layer.in_type.randn(2, 3)
    moved = x.flatten(2).flip(2).view_as(x)
    assert_close(layer(moved), layer(x).flatten(2).flip(2).view_as(layer(x)))
