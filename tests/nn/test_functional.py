"""torch.func: ensembles, per-sample gradients and Jacobians of every layer."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.testing import assert_close

import steerformer as sf
from nn.layers import VARIANTS, gapped, randomized, supported_input

pytestmark = pytest.mark.usefixtures("float64")
FUNCTIONAL = [parameter for parameter in VARIANTS if "blockwise" not in parameter.id]  # unsupported


def energy(layer, x):
    y = layer(x)
    return (y * torch.linspace(-1, 1, y[0].numel()).view_as(y[0])).sum()


def energy_of(layer, parameters, buffers, x):
    return energy(lambda x: functional_call(layer, (parameters, buffers), (x,)), x)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_vmap_ensemble_matches_its_members(group, make):
    """Values and gradients of two layers in one call, with one input for both."""
    members = [randomized(make(group)).eval() for _ in range(2)]
    x = supported_input(members[0])
    stacked, buffers = stack_module_state(members)
    if not stacked:
        pytest.skip("no parameters to stack")
    call = vmap(lambda *state: functional_call(members[0], state, (x,)))
    assert_close(call(stacked, buffers), torch.stack([member(x) for member in members]))
    found = vmap(grad(lambda *state: energy_of(members[0], *state, x)))(stacked, buffers)
    for i, member in enumerate(members):
        energy(member, x).backward()
        for name, parameter in member.named_parameters():
            assert_close(found[name][i], parameter.grad)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_per_sample_gradients_match_autograd(group, make):
    layer = randomized(make(group)).eval()
    state = dict(layer.named_parameters()), dict(layer.named_buffers())
    x = supported_input(layer).requires_grad_()
    of_sample = grad(lambda parameters, one: energy_of(layer, parameters, state[1], one[None]), argnums=(0, 1))
    into_parameters, into_x = vmap(of_sample, in_dims=(None, 0))(state[0], x)
    energy(layer, x).backward()
    assert_close(into_x, x.grad)
    for name, parameter in layer.named_parameters():
        assert_close(into_parameters[name].sum(dim=0), parameter.grad)


@pytest.mark.parametrize(("group", "make"), FUNCTIONAL)
def test_layers_apply_to_plain_tensors_inside_a_transform(group, make):
    """A frozen layer inside a function that torch.func differentiates by something else."""
    layer = randomized(make(group)).eval().requires_grad_(False)
    x = supported_input(layer)
    assert_close(grad(lambda scale: (layer(x) * scale).sum())(torch.ones(())), layer(x).sum())


@pytest.mark.parametrize("name", ["NormReLU", "LayerNorm", "Invariants"])
def test_jacobians_of_custom_autograd_functions_match_autograd(group, name):
    layer = getattr(sf.nn, name)(gapped(group))
    if name == "NormReLU":
        layer = sf.nn.NormReLU(gapped(group), bias=-0.3)
    x = layer.in_type.randn(1)
    assert_close(jacrev(layer)(x), torch.autograd.functional.jacobian(layer, x))
    twice = grad(lambda x: grad(lambda x: energy(layer, x))(x).square().sum())(x)
    x.requires_grad_()
    (once,) = torch.autograd.grad(energy(layer, x), x, create_graph=True)
    assert_close(twice, torch.autograd.grad(once.square().sum(), x)[0])


def test_vmap_in_float16(group):
    layer = sf.nn.NormReLU(gapped(group), bias=-0.3).half()
    x = layer.in_type.randn(3, 2).half()
    found = vmap(lambda one: layer(one[None])[0])(x)
    assert found.dtype == torch.float16
    assert_close(found, layer(x))


def test_blockwise_attention_raises_under_torch_func(group):
    layer = sf.nn.Attention(gapped(group), num_heads=1, implementation="blockwise")
    with pytest.raises(ValueError, match=r"blockwise attention does not support torch.func, .*'dense' or 'auto'"):
        grad(lambda x: energy(layer, x))(layer.in_type.randn(1, 3))
