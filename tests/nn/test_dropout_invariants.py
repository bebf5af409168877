"""Dropout of whole irrep copies, and rotation-invariant norms."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, gapped, image, vectors
from steerformer import FieldType

pytestmark = pytest.mark.usefixtures("float64")


def kept_copies(field_type, x, y):
    """Factor of each copy, ``(batch, copy)``; it must be the same for all of its channels."""
    factors = []
    for before, after in zip(field_type.split(x), field_type.split(y), strict=True):
        ratio = (after / before).transpose(1, 3).flatten(2)  # batch, copy, rest
        assert_close(ratio, ratio[..., :1].expand_as(ratio))
        factors.append(ratio[..., 0])
    return torch.cat(factors, dim=1)


@pytest.mark.parametrize("of", [gapped, vectors, image])
def test_dropout_zeros_whole_copies_and_rescales_the_rest(group, of):
    for size in ((), 3):
        layer = sf.nn.FieldDropout(of(group), p=0.4).train()
        x = layer.in_type.randn(64, size)
        factors = kept_copies(layer.in_type, x, layer(x))
        assert factors.shape == (64, layer.in_type.copies)
        dropped = factors == 0
        assert_close(factors[~dropped], torch.full(((~dropped).sum(),), 1 / 0.6))
        assert dropped.any(dim=0).all()  # each copy in some samples
        assert not dropped.all(dim=0).any()


def test_dropout_keeps_the_mean(group):
    for p in (0.1, 0.5, 0.9):
        layer = sf.nn.FieldDropout(FieldType(group, (20, 20)), p=p).train()
        x = torch.ones(2000, layer.in_type.channels)
        y = layer(x)
        assert y.mean().item() == pytest.approx(1, abs=4 * (p / (1 - p) / 80000) ** 0.5)
        assert (y == 0).double().mean().item() == pytest.approx(p, abs=0.01)


def test_dropout_is_equivariant(group):
    layer = sf.nn.FieldDropout(gapped(group)).train()
    x = layer.in_type.randn(4, 3)
    for R in group.grid_rotations()[:6]:
        torch.manual_seed(3)
        y = layer(x)
        torch.manual_seed(3)
        assert_close(layer(layer.in_type.rotate(x, R)), layer.out_type.rotate(y, R))


def test_dropout_is_identity_in_eval_mode_or_at_p_0(group):
    x = gapped(group).randn(2, 3)
    assert sf.nn.FieldDropout(gapped(group), p=0.9).eval()(x) is x
    assert torch.equal(sf.nn.FieldDropout(gapped(group), p=0.0).train()(x), x)


def test_dropout_draws_per_sample_and_follows_the_seed(group):
    layer = sf.nn.FieldDropout(FieldType(group, (32,))).train()
    x = torch.ones(2, 64)
    torch.manual_seed(1)
    first = layer(x)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(layer(x), first)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)


def test_invariants_are_the_norm_of_every_copy(group):
    for size in ((), 3):
        layer = sf.nn.Invariants(gapped(group))
        x = layer.in_type.randn(3, size)
        lengths = [np.sqrt((np.abs(f) ** 2).sum(axis=1)) for f in complex_pieces(layer.in_type, x).values()]
        np.testing.assert_allclose(layer(x).numpy(), np.concatenate(lengths, axis=1), rtol=0, atol=1e-12)
        assert layer.out_type == FieldType.image(group, gapped(group).copies)


def test_invariants_of_real_scalars_are_unchanged(group):
    x = image(group).randn(3, 3)
    assert torch.equal(sf.nn.Invariants(image(group))(x), x)


def test_invariants_of_one_voxel_are_invariant_at_any_angle(group):
    layer, x = sf.nn.Invariants(gapped(group)), gapped(group).randn(5)
    for _ in range(5):
        rotated = layer.in_type.rotate(x, group.random_rotation())
        assert_close(layer(rotated), layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("of", [gapped, vectors])
def test_invariants_may_be_modified_in_place(group, of):
    layer, x = sf.nn.Invariants(of(group)), of(group).randn(2, 3).requires_grad_()
    layer(x).add_(1).square().sum().backward()
    found, x.grad = x.grad, None
    (layer(x) + 1).square().sum().backward()
    assert_close(found, x.grad)


def test_invariants_are_accurate_in_float32_at_extreme_scales(group):
    """Squares of these numbers leave the range of float32, or nearly."""
    for scale in (1e30, 1e15, 1e-4, 1e-7):
        layer, x = sf.nn.Invariants(gapped(group)), gapped(group).randn(20)
        found = layer((scale * x).float()).double() / scale
        assert_close(found, layer(x), rtol=1e-5, atol=0, msg=lambda text, scale=scale: f"scale {scale}: {text}")
