"""Layers without values: built on the meta device and loaded later, or called with fake tensors."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad
from torch.testing import assert_close

import steerformer as sf
from models.small import classifier, unet
from nn.layers import VARIANTS, features, gapped, image, randomized, small_net, supported_input
from steerformer import FieldType
from steerformer.kernels import VoxelKernels


@pytest.mark.slow
@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_layer_built_on_meta_matches_after_loading(group, make):
    layer = randomized(make(group)).eval()
    x = supported_input(layer)
    with torch.device("meta"):
        twin = make(group).eval()
    assert all(value.is_meta for value in (*twin.parameters(), *twin.buffers()))
    with torch.no_grad():
        assert twin(x.to("meta")).shape == layer(x).shape
        twin.to_empty(device="cpu").load_state_dict(layer.state_dict())
        assert torch.equal(twin(x), layer(x))


def built_on_meta(make, *arguments, **options):
    with torch.device("meta"):
        return make(*arguments, **options).eval()


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_layer_built_on_meta_matches_with_assigned_parameters(group, make):
    """Constants are not part of the state dict: they get their values when first needed."""
    layer = randomized(make(group)).eval()
    x = supported_input(layer)
    twin = built_on_meta(make, group)
    twin.load_state_dict(layer.state_dict(), assign=True)
    with torch.inference_mode():
        assert torch.equal(twin(x), layer(x))
    assert not any(value.is_inference() for value in (*twin.parameters(), *twin.buffers()))  # later calls may train


@pytest.mark.parametrize("name", ["small net", "classifier", "U-Net"])
def test_model_built_on_meta_matches_with_assigned_parameters(group, name):
    make = {"small net": small_net, "classifier": classifier, "U-Net": unet}[name]
    model, twin = make(group).eval(), built_on_meta(make, group)
    twin.load_state_dict(model.state_dict(), assign=True)
    x = FieldType.image(group, 2 if name == "small net" else 1).randn(1, 8)
    with torch.no_grad():
        assert torch.equal(twin(x), model(x))
        assert torch.equal(copy.deepcopy(twin).double()(x.double()), copy.deepcopy(model).double()(x.double()))


@pytest.mark.parametrize("move", [nn.Module.cpu, nn.Module.double, lambda layer: layer.to("cpu", torch.float64)])
def test_constants_on_meta_follow_assigned_parameters(group, move):
    """Moved before any call. Casts alone keep constants on the meta device until they are needed."""
    net = small_net(group).eval()
    twin = built_on_meta(small_net, group)
    twin.load_state_dict(net.state_dict(), assign=True)
    twin, expected = move(twin), move(copy.deepcopy(net))
    x = image(group).randn(2, 8).to(expected[-1].weight)
    assert torch.equal(twin(x), expected(x))


def test_constants_have_the_dtype_of_assigned_parameters(group):
    net, twin = small_net(group).double().eval(), built_on_meta(small_net, group)
    twin.load_state_dict(net.state_dict(), assign=True)
    x = image(group).randn(2, 8, dtype=torch.float64)
    assert torch.equal(twin(x), net(x))


def test_constants_on_meta_get_values_inside_transforms(group):
    """Values from inside torch.func, fake tensors and autocast are not kept."""
    net, x = small_net(group).eval(), image(group).randn(2, 8)
    twin = built_on_meta(small_net, group)
    twin.load_state_dict(net.state_dict(), assign=True)
    assert_close(grad(lambda x: twin(x).sum())(x), grad(lambda x: net(x).sum())(x))
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert twin(mode.from_tensor(x)).shape == net(mode.from_tensor(x)).shape
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(twin(x), net(x))
    assert torch.equal(twin(x), net(x))


def test_module_on_meta_without_values_cannot_be_moved(group):
    with pytest.raises(NotImplementedError, match="to_empty"):
        built_on_meta(small_net, group).to("cpu")


def test_kernels_built_on_meta_are_not_cached(group):
    """The cache is shared by all layers, so it must not hold meta tensors."""
    options = {"sigma": 1.234 + group.dim / 100}  # used by no other test
    kernels = VoxelKernels(group, (3,) * group.dim, spectrum=sf.kernels.Spectrum(**options))
    with torch.device("meta"):
        assert kernels.functions(1).values.device.type == "cpu"
        sf.nn.Conv(FieldType(group, (1, 1)), FieldType(group, (1, 1)), kernel_size=3, spectrum=kernels.spectrum)
    assert kernels.functions(1).values.isfinite().all()


def test_dtype_mismatch_raises_on_meta(group):
    with torch.device("meta"):
        conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3)
    with pytest.raises(ValueError, match=r"Conv has weights of torch.float32, got a field of torch.float64"):
        conv(conv.in_type.randn(1, 4, dtype=torch.float64, device="meta"))


@pytest.mark.parametrize("name", ["Conv", "Linear", "Attention", "TensorProduct"])
def test_devices_of_field_and_weights_must_agree(group, name):
    """Torch mixes the meta device with others silently."""
    options = {"Conv": {"kernel_size": 3}, "Attention": {"num_heads": 1}}.get(name, {})
    types = [features(group)] * (1 if name == "Attention" else 2)
    x = features(group).randn(1, 4)
    layer, twin = getattr(sf.nn, name)(*types, **options), built_on_meta(getattr(sf.nn, name), *types, **options)
    with pytest.raises(
        ValueError, match=r"has weights on cpu, got a field on meta; move one of them with .to\(device\)"
    ):
        layer(x.to("meta"))
    with pytest.raises(ValueError, match=r"has weights on meta, got a field on cpu; load or initialize the weights"):
        twin(x)
    assert twin(x.to("meta")).is_meta


@pytest.mark.slow
@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_fake_tensors_work_in_eval_mode(group, make, unchecked):
    layer = make(group).eval()
    x = supported_input(layer)
    with torch.no_grad():
        y = layer(x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert layer(mode.from_tensor(x)).shape == y.shape
        assert torch.equal(layer(x), y)


def test_fake_weights_are_not_cached(group):
    conv, mode = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval(), FakeTensorMode()
    values = {**dict(conv.named_parameters()), **dict(conv.named_buffers())}
    fakes = {name: mode.from_tensor(value) for name, value in values.items()}
    x = conv.in_type.randn(1, 4)
    with torch.no_grad():
        with mode:
            assert functional_call(conv, fakes, (mode.from_tensor(x),)).shape[1] == gapped(group).channels
        assert conv(x).isfinite().all()
