"""Inputs of MONAI's type MetaTensor, as from its data loaders: results of plain tensors, and metadata are kept."""

import pytest
import torch
from monai.data import MetaTensor, list_data_collate

import steerformer as sf
from models.small import classifier, unet
from nn.attention_inputs import some_mask
from nn.layers import VARIANTS, gapped, randomized, supported_input


def as_batch(x):
    """A batch as from MONAI's ``DataLoader``."""
    affine = torch.eye(4, dtype=torch.float64)
    return list_data_collate([MetaTensor(sample, affine=affine, meta={"name": str(i)}) for i, sample in enumerate(x)])


def outcome(layer, x, **options):
    """Output, and gradients by the input and the parameters."""
    torch.manual_seed(1)  # dropout
    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    y = layer(x, **options)
    (y * torch.linspace(-1, 2, y.numel()).sin().view(y.shape)).sum().backward()
    return y, x.grad, *(parameter.grad.clone() for parameter in layer.parameters())


def assert_same_outcome(layer, x, **options):
    for mode in (True, False):
        layer.train(mode)
        state = {name: value.clone() for name, value in layer.state_dict().items()}
        expected = outcome(layer, x, **options)
        layer.load_state_dict(state)
        found = outcome(layer, as_batch(x), **options)
        assert isinstance(found[0], MetaTensor)
        assert found[0].meta["name"] == ["0", "1"]
        assert all(torch.equal(torch.as_tensor(ours), theirs) for ours, theirs in zip(found, expected, strict=True))
        with torch.no_grad():
            layer.eval()
            assert torch.equal(layer(as_batch(x), **options).as_tensor(), layer(x, **options))


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_layers_take_metatensors(group, make):
    layer = randomized(make(group))
    assert_same_outcome(layer, supported_input(layer))


@pytest.mark.parametrize("implementation", ["auto", "dense", "blockwise"])
@pytest.mark.parametrize("options", [{}, {"key_window": 1.5, "qk_norm": 2.0}], ids=["plain", "normalized"])
def test_attention_takes_metatensors(group, implementation, options):
    layer = sf.nn.Attention(gapped(group), num_heads=1, implementation=implementation, **options)
    x = layer.in_type.randn(2, 4)
    assert_same_outcome(layer, x)
    assert_same_outcome(layer, x, mask=some_mask(2, x.shape[2:]))
    mask = MetaTensor(some_mask(2, x.shape[2:]))
    for weights in (True, "max"):
        found = layer(as_batch(x), mask=mask, return_weights=weights)
        for ours, theirs in zip(found, layer(x, mask=mask.as_tensor(), return_weights=weights), strict=True):
            assert torch.equal(torch.as_tensor(ours), theirs)


@pytest.mark.parametrize("implementation", ["auto", "direct", "spectral", "basis"])
def test_convolution_takes_metatensors(group, implementation):
    layer = sf.nn.Conv(gapped(group), gapped(group), kernel_size=3, implementation=implementation)
    assert_same_outcome(layer, layer.in_type.randn(2, 6))


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_unet_takes_metatensors(group, implementation):
    net = unet(group, depth=1)
    for module in net.modules():
        if isinstance(module, sf.nn.Attention):
            module.implementation = implementation
    assert_same_outcome(net, net.in_type.randn(2, 8))


def test_classifier_takes_metatensors(group):
    net = classifier(group)
    assert_same_outcome(net, net.in_type.randn(2, 8))
