"""Gradients: match finite differences, reach every parameter, stay finite at zero and at extreme scales."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

import steerformer as sf
from checks import without_type_checks
from nn.layers import VARIANTS, gapped, in_space, randomized
from steerformer import FieldType


def smallest_input(layer, batch, **options):
    """Noise on the smallest grid of 3 to 5 voxels that the layer supports."""
    for size in (3, 4, 5):
        x = layer.in_type.randn(batch, in_space(layer.in_type.group, size), **options)
        try:
            layer(x.detach())
        except ValueError:
            continue
        return x
    raise AssertionError("no grid fits")


def as_function(layer):
    """The layer as a function of input and parameters, with a fixed seed for dropout."""
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *parameters):
        torch.manual_seed(5)
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    return function, [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]


MODES = (sf.nn.BatchNorm, sf.nn.Conv, sf.nn.FieldDropout, sf.nn.Gated)  # layers that differ in eval mode


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_gradients_match_finite_differences(group, make, float64):
    layer = randomized(make(group))
    x = smallest_input(layer, 2).requires_grad_()
    function, parameters = as_function(layer)
    for mode in (True, False) if isinstance(layer, MODES) else (True,):
        layer.train(mode)
        with without_type_checks():
            assert gradcheck(function, (x, *parameters), fast_mode=True), mode


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_every_parameter_gets_a_gradient(group, make):
    layer = randomized(make(group)).train()
    for _ in range(4):
        x = smallest_input(layer, 4).requires_grad_()
        with without_type_checks():
            y = layer(x)
            (y * torch.randn_like(y)).sum().backward()
        assert x.grad.any()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).all(), name


SMOOTH = {
    "NormReLU": lambda group: sf.nn.NormReLU(gapped(group), bias=-0.3),
    "LayerNorm": lambda group: sf.nn.LayerNorm(gapped(group)),
    "LayerNorm-paper": lambda group: sf.nn.LayerNorm(gapped(group), affine=False),
    "BatchNorm": lambda group: sf.nn.BatchNorm(gapped(group)),
    "Invariants": lambda group: sf.nn.Invariants(gapped(group)),
    "Gated": lambda group: sf.nn.Gated(gapped(group), kernel_size=1),
    "TensorProduct": lambda group: sf.nn.TensorProduct(gapped(group), gapped(group)),
    "Conv": lambda group: sf.nn.Conv(FieldType(group, (1, 1)), FieldType(group, (1, 1)), kernel_size=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", SMOOTH.values(), ids=SMOOTH)
def test_second_derivatives_match_finite_differences(group, make, float64, unchecked):
    layer = make(group).train()
    x = layer.in_type.randn(2, in_space(group, 2)).requires_grad_()
    function, parameters = as_function(layer)
    assert gradgradcheck(function, (x, *parameters), fast_mode=True)


NONLINEAR = {
    "NormReLU-negative": lambda group: sf.nn.NormReLU(gapped(group), bias=-0.5),
    "NormReLU-zero": lambda group: sf.nn.NormReLU(gapped(group)),
    "NormReLU-positive": lambda group: sf.nn.NormReLU(gapped(group), bias=0.5),
    "Gated": lambda group: sf.nn.Gated(gapped(group)),
    "FourierReLU": lambda group: sf.nn.FourierReLU(gapped(group)),
    "TensorProduct": lambda group: sf.nn.TensorProduct(gapped(group), gapped(group)),
    "LayerNorm": lambda group: sf.nn.LayerNorm(gapped(group)),
    "LayerNorm-paper": lambda group: sf.nn.LayerNorm(gapped(group), affine=False),
    "BatchNorm": lambda group: sf.nn.BatchNorm(gapped(group)),
    "BatchNorm-plain": lambda group: sf.nn.BatchNorm(gapped(group), affine=False),
    "Invariants": lambda group: sf.nn.Invariants(gapped(group)),
}


def assert_finite(layer, x, case=None):
    x = x.requires_grad_()
    y = layer(x)
    assert y.isfinite().all(), case
    y.sum().backward()
    assert x.grad.isfinite().all(), case
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), (name, case)


@pytest.mark.parametrize("name", NONLINEAR)
def test_values_and_gradients_are_finite_at_any_scale(group, name):
    """In float32; the product of two features of 1e30 overflows, so it is tested up to 1e18."""
    layer = NONLINEAR[name](group)
    scales = (0.0, 1e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e18, 1e30)
    for scale, mode in product(scales, (True, False)):
        if name != "TensorProduct" or scale <= 1e18:
            layer.zero_grad()
            assert_finite(layer.train(mode), scale * layer.in_type.randn(2, 3), (scale, mode))


@pytest.mark.parametrize("name", NONLINEAR)
def test_values_and_gradients_are_finite_for_partly_zero_fields(group, name):
    """As in masked images: half of the voxels, one sample, and one copy are zero."""
    layer = NONLINEAR[name](group).train()
    x = layer.in_type.randn(3, 4)
    x[:, :, :2] = 0
    x[0] = 0
    for piece in layer.in_type.split(x):
        piece[:, :, :, 0] = 0
    assert_finite(layer, x)


@pytest.mark.parametrize("norm", [sf.nn.LayerNorm, sf.nn.BatchNorm])
def test_norms_normalize_at_any_scale(group, norm):
    """Outputs have unit variance wherever eps is negligible, for few and for many channels."""
    types, scales = ((1, 2, 0, 1), (64, 32, 16), (300, 200, 100)), (1e-30, 1e-3, 1.0, 1e15, 1e30)
    for multiplicities, scale in product(types, scales):
        layer = norm(FieldType(group, multiplicities), eps=1e-12).train()
        y = layer(scale * layer.in_type.randn(8, 2))
        power = y.square().mean().item()
        assert power == pytest.approx(1, rel=1e-2) if scale > 1e-6 else power < 1, (multiplicities, scale)


def test_gradients_propagate_through_deep_stack(group):
    field_type = gapped(group)
    blocks = [
        nn.Sequential(
            sf.nn.Conv(field_type, field_type, kernel_size=3),
            sf.nn.BatchNorm(field_type),
            sf.nn.NormReLU(field_type, bias=-0.1),
            sf.nn.Gated(field_type),
            sf.nn.LayerNorm(field_type),
            sf.nn.FourierReLU(field_type),
        )
        for _ in range(3)
    ]
    net = nn.Sequential(*blocks, sf.nn.Invariants(field_type))
    net(field_type.randn(2, 4)).sum().backward()
    for name, parameter in net.named_parameters():
        assert 1e-6 < parameter.grad.norm() < 1e6, name
