"""Layers without values: built on the meta device and loaded later, or called with fake tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

import steerformer as sf
from nn.layers import VARIANTS, features, gapped, randomized, supported_input
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
