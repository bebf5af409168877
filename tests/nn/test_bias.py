"""Bias of Conv and Linear: a learned constant of degree 0, and only there."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, features, gapped, image, vectors, worst_error
from steerformer import SO2

pytestmark = pytest.mark.usefixtures("float64")
LAYERS = {
    "Conv": lambda into, out, **options: sf.nn.Conv(into, out, kernel_size=3, **options),
    "Linear": sf.nn.Linear,
    "ConvTranspose": lambda into, out, **options: sf.nn.ConvTranspose(into, out, kernel_size=4, stride=2, **options),
}
CASES = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


@CASES
def test_bias_adds_a_constant_to_the_scalars(group, make):
    for out in (gapped(group), image(group)):
        layer = make(features(group), out, bias=True)
        x = layer.in_type.randn(2, 4)
        before = complex_pieces(out, layer(x))
        values = torch.randn_like(layer.bias)
        layer.bias.data.copy_(values)
        after = complex_pieces(out, layer(x))
        constant = values[0].numpy() + (0 if out.real else 1j * values[1].numpy())
        for degree in out.degrees:
            change = torch.from_numpy(after[degree] - before[degree])
            expected = torch.from_numpy(constant) if degree == 0 else torch.zeros(1)
            space = (1,) * group.dim
            assert_close(change, expected.to(change).view(1, 1, -1, *space).expand_as(change), rtol=0, atol=1e-12)


@CASES
def test_bias_is_equivariant_and_a_constant_of_another_degree_is_not(group, make):
    layer = make(features(group), gapped(group), bias=True).eval()
    layer.bias.data.normal_()
    assert worst_error(layer, 4) < 1e-10

    def shifted(x):
        return layer(x) + 0.1

    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(shifted, in_type=layer.in_type, out_type=layer.out_type, size=4)


@CASES
def test_without_bias_seeds_and_checkpoints_are_as_before(group, make):
    torch.manual_seed(1)
    plain = make(features(group), gapped(group))
    torch.manual_seed(1)
    biased = make(features(group), gapped(group), bias=True)
    assert plain.bias is None and "bias" not in plain.state_dict()
    assert biased.bias.shape == (2, 1) and not biased.bias.any()
    x = plain.in_type.randn(1, 4)
    assert torch.equal(plain(x), biased(x))
    assert biased.load_state_dict(plain.state_dict(), strict=False).missing_keys == ["bias"]
    assert "bias=True" in repr(biased) and "bias" not in repr(plain)


@CASES
def test_bias_gets_gradients_and_is_reset(group, make):
    layer = make(features(group), gapped(group), bias=True)
    y = layer(layer.in_type.randn(2, 4))
    y.sum().backward()
    assert_close(layer.bias.grad, torch.full((2, 1), float(y[:, 0].numel())))
    layer.bias.data.normal_()
    layer.reset_parameters()
    assert not layer.bias.any()


@CASES
def test_half_precision_keeps_its_dtype(make):
    layer = make(features(SO2), gapped(SO2), bias=True).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(layer.in_type.randn(1, 4, dtype=torch.float32)).dtype == torch.bfloat16


@CASES
def test_types_without_scalars_raise(group, make):
    with pytest.raises(ValueError, match=r"the bias of .* is a constant of degree 0, which .*'2x1'.* does not have"):
        make(features(group), vectors(group), bias=True)


def test_attention_with_biased_projections_calls_them(group):
    """Linear layers with a bias are not replaced by products with their matrices."""
    attention = sf.nn.Attention(features(group), num_heads=1)
    x = features(group).randn(1, 3)
    for name, layer in list(attention.named_children()):
        if isinstance(layer, sf.nn.Linear):
            biased = sf.nn.Linear(layer.in_type, layer.out_type, bias=True)
            biased.load_state_dict(layer.state_dict(), strict=False)
            setattr(attention, name, biased)
            before = attention(x)
            biased.bias.data.normal_(std=3.0)
            assert not torch.allclose(attention(x), before), name


@CASES
def test_parameters_per_degree_count_the_bias(group, make):
    layer = make(features(group), gapped(group), bias=True)
    counts, plain = (sf.models.parameters_per_degree(each) for each in (layer, make(features(group), gapped(group))))
    assert counts[0] == plain[0] + 2 and {**counts, 0: 0} == {**plain, 0: 0}
