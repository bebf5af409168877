"""Plain modules: torch's own convolutions, and the outputs of the model."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from models.small import KINDS, STEMS, classifier, monai_unet, plain, settle, unet
from nn.layers import LAYERS, features, gapped, randomized, supported_inputs

CONVOLUTIONS = {2: nn.Conv2d, 3: nn.Conv3d}
pytestmark = pytest.mark.usefixtures("unchecked")


def steerable(module):
    return [name for name, layer in module.named_modules() if type(layer) in (sf.nn.Conv, sf.nn.ConvTranspose)]


@pytest.mark.parametrize("make", LAYERS)
def test_outputs_of_layers_are_the_same(make, group, float64):
    """On odd, even and unequal grids; batch normalizations in eval mode."""
    layer = randomized(make(group)).eval()
    module = sf.plain_module(layer)
    assert not steerable(module)
    with torch.no_grad():
        for x in supported_inputs(layer):
            assert_close(module(x), layer(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        lambda group: classifier(group, **KINDS["gated"]),
        lambda group: classifier(group, **KINDS["transformer, norm after each convolution"]),
        plain,
    ],
)
def test_outputs_of_classifiers_are_the_same(model, group):
    model = settle(model(group), 8)
    module, x = sf.plain_module(model), model.in_type.randn(2, 8)
    assert not steerable(module) and not any(isinstance(layer, sf.nn.BatchNorm) for layer in module.modules())
    with torch.no_grad():
        assert_close(module(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, STEMS["stem"], {**STEMS["stem, fourier"], "pool": 3}, {"pool": [3, 2]}])
def test_outputs_of_unets_are_the_same_on_any_grid(options, group):
    model = settle(unet(group, **options), 12)
    module = sf.plain_module(model)
    assert not steerable(module)
    with torch.no_grad():
        for size in ((13, 12, 11), (12, 9, 12)):
            x = model.in_type.randn(1, size[: group.dim])
            assert_close(module(x), model(x), rtol=1e-5, atol=1e-5)


def test_convolutions_are_torch_s_own(group):
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3)
    module = sf.plain_module(nn.Sequential(conv, sf.nn.NormReLU(gapped(group))))
    assert type(module[0]) is CONVOLUTIONS[group.dim] and module[0].padding == (1,) * group.dim
    assert_close(module[0].weight, conv.kernel())
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_model_itself_stays_as_it_is(group):
    net = nn.Sequential(sf.nn.Conv(features(group), gapped(group), kernel_size=3)).train()
    sf.plain_module(net)
    assert net.training and steerable(net) == ["0"] and net[0].weight.requires_grad


def test_layer_that_is_used_twice_stays_one(group):
    conv = sf.nn.Conv(features(group), features(group), kernel_size=3)
    module = sf.plain_module(nn.Sequential(conv, conv))
    assert module[0] is module[1]


def test_subclasses_and_unknown_layers_stay(group):
    """They may do more than the class that is known."""

    class Doubled(sf.nn.Conv):
        def forward(self, x):
            return 2 * super().forward(x)

    layer = Doubled(features(group), gapped(group), kernel_size=3).eval()
    module, x = sf.plain_module(nn.Sequential(layer)), features(group).randn(1, 5)
    assert type(module[0]) is Doubled
    with torch.no_grad():
        assert_close(module(x), layer(x))


def test_monai_networks_stay(group):
    model = settle(monai_unet(group), 8)
    x = model.in_type.randn(1, 9)
    with torch.no_grad():
        assert_close(sf.plain_module(model)(x), model(x))
