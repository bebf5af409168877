"""Forward-mode derivatives of every layer, by torch.func and by dual numbers."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

import steerformer as sf
from nn.layers import VARIANTS, gapped, randomized, supported_input

pytestmark = [
    pytest.mark.usefixtures("float64", "unchecked"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),  # torch's own forward mode calls it
]
FUNCTIONAL = [parameter for parameter in VARIANTS if "blockwise" not in parameter.id]  # unsupported
STEP = 1e-6
OWN_DERIVATIVES = {
    "NormReLU": lambda group: sf.nn.NormReLU(gapped(group), bias=-0.3),
    "LayerNorm": lambda group: sf.nn.LayerNorm(gapped(group)),
    "LayerNorm-floor": lambda group: sf.nn.LayerNorm(gapped(group), floor=0.5),
    "Invariants": lambda group: sf.nn.Invariants(gapped(group)),
}


def along_noise(layer):
    """The layer as a function of input and parameters, its arguments, and noise to move them along."""
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *parameters):
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    inputs = (supported_input(layer), *(parameter.detach() for parameter in layer.parameters()))
    return function, inputs, tuple(torch.randn_like(value) for value in inputs)


def difference_quotient(function, inputs, tangents):
    before, after = (
        function(*(value + step * tangent for value, tangent in zip(inputs, tangents, strict=True)))
        for step in (-STEP, STEP)
    )
    return (after - before) / (2 * STEP)


def close_to_finite_differences(found, expected):
    assert_close(found, expected, rtol=1e-5, atol=1e-6 * max(expected.abs().max().item(), 1))


@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_jvp_matches_finite_differences(group, make):
    function, inputs, tangents = along_noise(randomized(make(group)).eval())
    y, found = jvp(function, inputs, tangents)
    assert_close(y, function(*inputs))
    close_to_finite_differences(found, difference_quotient(function, inputs, tangents))


@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_dual_numbers_match_finite_differences(group, make):
    function, inputs, tangents = along_noise(randomized(make(group)).eval())
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(value, tangent) for value, tangent in zip(inputs, tangents, strict=True)]
        found = forward_ad.unpack_dual(function(*duals)).tangent
    close_to_finite_differences(found, difference_quotient(function, inputs, tangents))


@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_second_derivatives_agree_in_forward_and_reverse_mode(group, make):
    layer = randomized(make(group)).eval()
    x = supported_input(layer, batch=1)
    once, twice, factors = torch.randn_like(x), torch.randn_like(x), torch.randn_like(layer(x))

    def energy(x):
        return (layer(x) * factors).sum()

    found = jvp(lambda x: jvp(energy, (x,), (once,))[1], (x,), (twice,))[1]
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(energy(x), x, create_graph=True)
    slope = (gradient * once).sum() + 0 * x.sum()  # a linear layer's gradient does not depend on its input
    assert_close(found, (torch.autograd.grad(slope, x)[0] * twice).sum(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", OWN_DERIVATIVES.values(), ids=OWN_DERIVATIVES)
def test_own_derivatives_in_forward_mode(group, make):
    """Along the input alone, all at once, nested, and at zero."""
    layer = make(group)
    x = layer.in_type.randn(1)
    tangent = torch.randn_like(x)
    close_to_finite_differences(jvp(layer, (x,), (tangent,))[1], difference_quotient(layer, (x,), (tangent,)))
    assert_close(jacfwd(layer)(x), jacrev(layer)(x))
    assert_close(vmap(jacfwd(layer))(x[None]), jacfwd(layer)(x)[None])

    def energy(x):
        return layer(x).square().sum() + layer(x).sum()

    assert_close(hessian(energy)(x), jacrev(jacrev(energy))(x))
    assert_close(jacfwd(jacfwd(energy))(x), jacrev(jacrev(energy))(x))
    zero = torch.zeros_like(x)
    assert jvp(layer, (zero,), (tangent,))[1].isfinite().all()


@pytest.mark.parametrize("make", OWN_DERIVATIVES.values(), ids=OWN_DERIVATIVES)
def test_forward_mode_stays_within_the_range_of_float32(group, make):
    layer = make(group)
    single = make(group).float()
    for scale in (0.0, 1e-30, 1e-20, 1e-3, 0.1, 1.0, 1e3, 1e20):
        x, tangent = (scale * layer.in_type.randn(1)).float(), layer.in_type.randn(1).float()
        with torch.no_grad():
            found = jvp(single, (x,), (tangent,))[1]
        assert found.isfinite().all(), scale
        if 1e-3 <= scale <= 1e3:
            expected = jvp(layer, (x.double(),), (tangent.double(),))[1]
            assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_running_statistics_have_no_forward_mode_derivatives(group):
    layer = sf.nn.BatchNorm(gapped(group)).train()
    x = layer.in_type.randn(4, 3)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x))).tangent is not None
        assert all(forward_ad.unpack_dual(value).tangent is None for value in layer.buffers())


def test_blockwise_attention_raises_in_forward_mode(group):
    layer = sf.nn.Attention(gapped(group), num_heads=1, implementation="blockwise")
    x = layer.in_type.randn(1, 3)
    with (
        forward_ad.dual_level(),
        pytest.raises(ValueError, match=r"blockwise attention does not support .*'dense' or 'auto'"),
    ):
        layer(forward_ad.make_dual(x, x))
