"""MONAI's UNet with the interface of our models."""

import pytest
import torch
import torch.nn.functional as F

import steerformer as sf
from models.small import monai_unet
from steerformer import SO2, SO3
from steerformer.config import ConfigError
from steerformer.models.summary import count


def test_even_kernels_are_rejected():
    with pytest.raises(ConfigError, match=r"kernel_size must be odd, got 4"):
        monai_unet(SO2, kernel_size=4)


@pytest.fixture(params=["unet", "dynunet"])
def control(group, request):
    options = {"architecture": "dynunet", "channels": [4, 4, 8], "norm": "instance"}
    return monai_unet(group, **(options if request.param == "dynunet" else {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deep_supervision": True}, "deep_supervision needs architecture: dynunet"),
        ({"architecture": "dynunet", "channels": [4, 8]}, r"at least 3 levels, got \[4, 8\]"),
    ],
)
def test_impossible_options_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        monai_unet(SO2, **options)


def test_coarser_levels_predict_in_training_mode_only(group):
    options = {"architecture": "dynunet", "channels": [4, 4, 8], "norm": "instance"}
    model, plain = (monai_unet(group, **options, deep_supervision=deep) for deep in (True, False))
    x = model.in_type.randn(2, (9, 13, 12)[: group.dim])
    logits = model.train()(x)
    assert logits.shape == (2, 2, 3, *x.shape[2:])
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if key in plain.state_dict()})
    assert torch.allclose(logits[:, 0], plain.train()(x), atol=1e-5)
    assert torch.equal(model.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 7, 7), (13, 22, 3), (8, 8, 8)])
def test_any_grid_size(control, sizes):
    x = control.in_type.randn(2, sizes[: control.in_type.group.dim])
    logits = control(x)
    assert logits.shape == (2, 3, *x.shape[2:])
    F.cross_entropy(logits, torch.zeros(2, *x.shape[2:], dtype=torch.long)).backward()
    assert all(parameter.grad is not None for parameter in control.parameters())


def test_multiples_of_the_stride_are_not_padded(control):
    control.eval()
    x = control.in_type.randn(1, 8)
    assert torch.equal(control(x), control.net(x))


def test_margin_surrounds_inputs_in_eval_mode_only(group):
    model, plain = monai_unet(group, margin=4), monai_unet(group)
    plain.load_state_dict(model.state_dict())
    x = model.in_type.randn(2, 8)
    inside = (slice(None), slice(None), *[slice(4, 12)] * group.dim)
    assert torch.equal(model.train()(x), plain.train()(x))
    assert torch.equal(model.eval()(x), plain.eval()(F.pad(x, [4] * 2 * group.dim))[inside])


def test_windows_do_not_depend_on_what_lies_far_away(group):
    """Instance norms over a whole input do: the negative control."""
    options = {"architecture": "dynunet", "channels": [4, 4, 8], "norm": "instance"}
    model, whole = monai_unet(group, **options, window=[16] * group.dim).eval(), monai_unet(group, **options).eval()
    whole.load_state_dict(model.state_dict())
    x = model.in_type.randn(1, (16, 16, 16)[: group.dim])
    assert torch.allclose(model(x), whole(x), atol=1e-6)
    empty_side = [0, 0] * (group.dim - 1) + [0, 48]
    near = (slice(None), slice(None), slice(8))  # only windows that begin at the edge reach these
    for each, is_local in ((model, True), (whole, False)):
        change = (each(F.pad(x, empty_side))[near] - each(x)[near]).abs().max()
        assert (change < 1e-5) == is_local


def test_inputs_smaller_than_a_window_are_padded(group):
    options = {"architecture": "dynunet", "channels": [4, 4, 8], "norm": "instance"}
    model, whole = monai_unet(group, **options, window=[16] * group.dim), monai_unet(group, **options)
    whole.load_state_dict(model.state_dict())
    x = model.in_type.randn(2, 12)
    inside = (slice(None), slice(None), *[slice(2, 14)] * group.dim)
    assert torch.allclose(model.eval()(x), whole.eval()(F.pad(x, [2] * 2 * group.dim))[inside], atol=1e-4)
    assert torch.equal(model.train()(x), whole.train()(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": [16]}, r"one side for each of 2 axes, got \[16\]"),
        ({"window": [16, 16], "margin": 4}, "give window or margin, not both"),
    ],
)
def test_impossible_windows_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        monai_unet(SO2, **options)


def test_types_and_stride(control):
    assert control.out_type == sf.FieldType.image(control.in_type.group, 3)
    assert control.stride == 2 ** (len(control.config.channels) - 1)


def test_save_and_load(control, tmp_path):
    sf.save(control, tmp_path / "model.safetensors")
    back, x = sf.load(tmp_path / "model.safetensors"), control.in_type.randn(1, 5)
    assert back.config == control.config
    assert torch.equal(back(x), control.eval()(x))


@pytest.mark.parametrize(("data", "other"), [("ph2", "transformer-k4"), ("hippocampus", "transformer-l2")])
def test_has_as_many_parameters_as_the_model_it_is_the_control_of(data, other):
    control, steerable = (count(sf.models.build(f"{data}-{name}-cpu"))[0] for name in ("monai", other))
    assert control == pytest.approx(steerable, rel=0.15)


@pytest.mark.parametrize("shape", [(2, 2, 8, 8, 8), (1, 8, 8), (2, 1, 8, 8)])
def test_wrong_input_shapes_are_rejected(shape, unchecked):
    with pytest.raises(ValueError, match=r"MonaiUNet takes .* a tensor \(batch, 1, 3 spatial axes\), got shape"):
        monai_unet(SO3)(torch.zeros(shape))
