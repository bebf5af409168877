"""Parameters by degree."""

import pytest
import torch

import steerformer as sf
from models.small import classifier, monai_unet, plain, unet
from nn.layers import LAYERS, randomized, supported_input
from steerformer import SO2, SO3, FieldType
from steerformer.models import parameters_per_degree
from steerformer.nn import Attention, BatchNorm, Gated, LayerNorm, Linear, NormReLU, PositionalEncoding

_OWN_PARAMETERS = ("Conv", "Linear", "NormReLU", "LayerNorm", "BatchNorm")
SIMPLE = [layer for layer in LAYERS if layer.id.split("-")[0] in _OWN_PARAMETERS]
_IN_3D = ("Conv-3", "Conv-image-out", "Linear", "NormReLU", "BatchNorm", "Conv-real", "Linear-real", "BatchNorm-real")
IN_3D = [layer for layer in SIMPLE if layer.id in _IN_3D]
VARIANTS = [
    pytest.param(group, *layer.values, id=f"{group}-{layer.id}")
    for group, layers in ((SO2, SIMPLE), (SO3, IN_3D))
    for layer in layers
]


def changed_by_gradient(layer, x):
    """The oracle: for each degree of the output, the number of parameters with a gradient from it."""
    counts = {}
    for i, degree in enumerate(layer.out_type.degrees):
        layer.zero_grad()
        layer.out_type.split(layer(x.requires_grad_()))[i].square().sum().backward()
        gradients = [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
        counts[degree] = sum(int((gradient != 0).sum()) for gradient in gradients)
    return {degree: count for degree, count in counts.items() if count}


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_counts_are_the_parameters_that_change_each_degree(group, make, float64, unchecked):
    layer = randomized(make(group)).eval()
    assert parameters_per_degree(layer) == changed_by_gradient(layer, supported_input(layer))


def test_counts_by_hand(group):
    features = FieldType(group, (4, 2, 2))
    linear = {0: 32, 1: 8, 2: 8}
    assert parameters_per_degree(Linear(features, features)) == linear
    assert parameters_per_degree(PositionalEncoding(features)) == {0: 8, 1: 4, 2: 4}
    assert parameters_per_degree(LayerNorm(features)) == {0: 4, 1: 2, 2: 2}
    assert parameters_per_degree(BatchNorm(features)) == {0: 4 + 8, 1: 2, 2: 2}
    attention = parameters_per_degree(Attention(features, num_heads=2))
    assert attention == {0: 4 * 32 + 2 * 8, 1: 4 * 8 + 2 * 4, 2: 4 * 8 + 2 * 4}
    gated = Gated(features)
    assert parameters_per_degree(gated) == {0: gated.gates.weight.numel() + 4, 1: 2, 2: 2}


def test_counts_of_models_add_up(group):
    for make in (classifier, plain, unet, monai_unet):
        model = make(group)
        found = parameters_per_degree(model)
        assert sum(found.values()) == sum(parameter.numel() for parameter in model.parameters())
        assert all(found.values())
        assert (set(found) == {None}) == (make is monai_unet)
    assert list(parameters_per_degree(classifier(group))) == [0, 1, 2, None]


def test_sequential_and_shared_layers(group):
    """A layer that is used twice counts once, as in ``parameters()``."""
    features = FieldType(group, (2, 1))
    linear = Linear(features, features)
    net = torch.nn.Sequential(linear, NormReLU(features), linear, torch.nn.Flatten(), torch.nn.Linear(3, 2))
    assert parameters_per_degree(net) == {0: 8 + 2, 1: 2 + 1, None: 8}


def test_layers_without_parameters_have_none(group):
    assert parameters_per_degree(sf.nn.Invariants(FieldType(group, (2, 1)))) == {}
