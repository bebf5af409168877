"""Models with real features: equivariance, parameters, configuration, saving and loading."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from models.small import assert_equivariant_on_grid, classifier, settle, unet
from steerformer import SO3, models
from steerformer.nn import Attention, BatchNorm, Conv, Linear, PositionalEncoding

CLASSIFIERS = {
    "layer norm": {"norm": "layer", "widths": [[2], [2]]},
    "gated": {"nonlinearity": "gated", "depth": 0},
    "fourier": {"nonlinearity": "fourier", "norm_after": "convolution", "mlp_nonlinearity": "fourier"},
    "norms of features": {"features": [4, 2], "depth": 0},
}
UNETS = {
    "transformer": {"depth": 1},
    "MLP, absolute": {"depth": 0, "head": "absolute"},
    "stem, fourier": {"stem_stride": 2, "head": "scalar", "nonlinearity": "fourier", "norm_after": "convolution"},
}


@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_logits_of_classifiers_are_invariant_to_grid_rotations(options, float64):
    model = settle(classifier(SO3, real=True, **options), 8, batch=4)
    assert_equivariant_on_grid(model, size=8, batch=1)


@pytest.mark.parametrize("options", UNETS.values(), ids=UNETS)
def test_logits_of_unets_rotate_with_the_volume(options, float64):
    assert_equivariant_on_grid(settle(unet(SO3, real=True, **options), 8), size=8, batch=1)


def test_a_real_part_of_vectors_alone_is_detected(float64):
    """The control: a constant added to one component of real vectors breaks invariance."""
    model = settle(classifier(SO3, real=True, depth=0), 8, batch=4)

    def spoil(module, inputs, output):
        output[:, module.out_type.multiplicity(0)] += 0.3
        return output

    model.blocks[0].register_forward_hook(spoil)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_equivariant_on_grid(model, size=8, batch=1)


@pytest.mark.parametrize("make", [classifier, unet])
def test_layers_of_real_models_have_half_the_channels_and_weights(make):
    real, whole = make(SO3, real=True), make(SO3)
    compared = 0
    for one, other in zip(real.modules(), whole.modules(), strict=True):
        if isinstance(one, (Linear, BatchNorm)) and not other.in_type.real:
            assert 2 * one.in_type.channels == other.in_type.channels
        if isinstance(one, Linear):
            compared += 1
            assert 2 * sum(w.numel() for w in one.weights) == sum(w.numel() for w in other.weights)
    assert compared
    counts = models.summary(real, 8)
    assert counts.parameters == sum(models.parameters_per_degree(real).values())


def test_all_features_and_weights_are_real():
    model = classifier(SO3, real=True, mlp_nonlinearity="fourier")
    types = [module.out_type for module in model.modules() if hasattr(module, "out_type")]
    assert all(field_type.real for field_type in types)
    weights = [module.weight for module in model.modules() if isinstance(module, (Conv, PositionalEncoding))]
    assert len(weights) > 4 and all(len(weight) == 1 for weight in weights)
    assert all(module.score == "real" for module in model.modules() if isinstance(module, Attention))
    counts = models.summary(model)
    assert counts.complex_parameters == counts.parameters
    assert "2x0+2x1+2x2 real" in str(counts)


@pytest.mark.parametrize("make", [classifier, unet])
def test_save_and_load(make, tmp_path):
    model = make(SO3, real=True)
    model(model.in_type.randn(2, 8))
    sf.save(model, tmp_path / "model.safetensors")
    back = sf.load(tmp_path / "model.safetensors")
    assert back.config == model.config and back.config.real
    x = model.in_type.randn(1, 8)
    assert_close(back(x), model.eval()(x), rtol=0, atol=0)


def test_every_parameter_of_a_preset_gets_a_gradient():
    """The preset of the hippocampus with model.real=true, on a small volume."""
    model = models.build({**models.preset("hippocampus-transformer-l2-cpu")["model"], "real": True})
    model(torch.randn(2, 1, 12, 12, 12)).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_real_features_of_images_raise():
    with pytest.raises(ValueError, match=r"real features are for volumes, got group SO2: .* leave real out"):
        models.build({"kind": "classifier", "group": "SO2", "size": 8, "real": True})
