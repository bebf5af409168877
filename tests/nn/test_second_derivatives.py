"""Second derivatives in float32, where squares, roots and their reciprocals leave the range of the dtype first."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from nn.layers import VARIANTS, gapped, randomized, supported_input

NORMS = (0.0, 1e-38, 1e-20, 1e-10, 1e-7, 5e-7, 2e-6, 1e-5, 1e-3, 0.03, 0.1, 0.3, 0.45, 0.55, 0.61, 0.7, 1.0, 3.0, 10.0)

DIFFERENTIABLE = [parameter for parameter in VARIANTS if "blockwise" not in parameter.id]  # has first derivatives only


def copies_of_norm(field_type, norm):
    """Noise whose irrep copies all have this norm."""
    x = field_type.randn(3, 2, dtype=torch.float64)
    pieces = [piece / piece.norm(dim=(1, 2), keepdim=True) * norm for piece in field_type.split(x)]
    return field_type.pack(pieces).float()


def reference(field_type, x, bias):
    """``x ReLU(1 + b / |x|)`` of the definition; norms below 1e-6 count as 1e-6."""
    pieces, first = [], 0
    for piece in field_type.split(x):
        norms = piece.square().sum(dim=(1, 2), keepdim=True).clamp_min(1e-12).sqrt()
        shift = bias[first : first + piece.shape[3]].view(-1, *(1 for _ in piece.shape[4:]))
        pieces.append(piece * torch.relu(1 + shift / norms))
        first += piece.shape[3]
    return field_type.pack(pieces)


def second_derivatives(function, *inputs):
    """Gradients of a fixed combination of first derivatives, by the inputs and by the gradient of the output."""
    generator = torch.Generator().manual_seed(1)

    def noise(like):
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)

    inputs = [value.detach().requires_grad_() for value in inputs]
    y = function(*inputs)
    grad = noise(y).requires_grad_()
    first = torch.autograd.grad(y, inputs, grad, create_graph=True)
    return torch.autograd.grad(sum((value * noise(value)).sum() for value in first), [*inputs, grad])


@pytest.mark.parametrize("bias", [-0.5, -0.05, 0.0, 0.5])
def test_second_derivatives_of_norm_relu_at_all_norms(group, bias):
    layer = sf.nn.NormReLU(gapped(group))
    biases = torch.full_like(layer.bias, bias)
    for norm in NORMS:
        x = copies_of_norm(layer.in_type, norm)
        found = second_derivatives(lambda x, bias: torch.func.functional_call(layer, {"bias": bias}, (x,)), x, biases)
        expected = second_derivatives(lambda x, b: reference(layer.in_type, x, b), x.double(), biases.double())
        for ours, theirs in zip(found, expected, strict=True):
            largest = theirs.abs().max().item()
            assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5 * largest, msg=lambda text, n=norm: f"{n}: {text}")


@pytest.mark.parametrize("name", ["LayerNorm", "Invariants", "MLP", "TransformerBlock"])
def test_second_derivatives_match_double_precision(group, name):
    options = {"num_heads": 1, "implementation": "dense"} if name == "TransformerBlock" else {}
    layer = getattr(sf.nn, name)(gapped(group), **options)
    exact = getattr(sf.nn, name)(gapped(group), **options).double()
    exact.load_state_dict(layer.state_dict())
    for norm in NORMS:
        x = copies_of_norm(layer.in_type, norm)
        found, expected = second_derivatives(layer, x), second_derivatives(exact, x.double())
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.isfinite().all(), norm
            if norm >= 0.1:
                assert_close(ours.double(), theirs, rtol=1e-2, atol=1e-3 * theirs.abs().max().item())


@pytest.mark.parametrize(("group", "make"), DIFFERENTIABLE)
def test_first_derivatives_do_not_depend_on_create_graph(group, make, float64):
    layer = randomized(make(group)).train()
    x = supported_input(layer).requires_grad_()
    inputs = [x, *layer.parameters()]
    found = []
    for create_graph in (False, True):
        torch.manual_seed(1)  # dropout
        y = layer(x)
        loss = (y * torch.linspace(-1, 2, y.numel()).sin().view_as(y)).sum()
        found.append(torch.autograd.grad(loss, inputs, create_graph=create_graph))
    assert_close(*found)


def test_convolution_with_weights_that_depend_on_its_input(group, float64):
    """Gradients by the input and by the kernel stay apart, though the kernel is a function of the input."""
    layer = sf.nn.Conv(gapped(group), gapped(group), kernel_size=3, implementation="spectral")
    x = layer.in_type.randn(1, 4).requires_grad_()
    found = []
    for create_graph in (False, True):
        weight = layer.weight * x.sin().mean()
        y = torch.func.functional_call(layer, {"weight": weight}, (x,))
        found.append(torch.autograd.grad(y.sin().sum(), x, create_graph=create_graph)[0])
    assert_close(*found)
