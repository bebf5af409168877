"""Layers without numbers: built on the device "meta" and filled later, or seen through fake tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

import steerformer as sf
from nn.layers import LAYERS, features, gapped, input_it_takes, randomized
from steerformer import FieldType
from steerformer.kernels import VoxelKernels


@pytest.mark.parametrize("make", LAYERS)
def test_built_without_memory_and_filled_later_it_is_the_same(group, make):
    layer = randomized(make(group)).eval()
    x = input_it_takes(layer)
    with torch.device("meta"):
        twin = make(group).eval()
    assert all(value.is_meta for value in (*twin.parameters(), *twin.buffers()))
    with torch.no_grad():
        assert twin(x.to("meta")).shape == layer(x).shape
        twin.to_empty(device="cpu").load_state_dict(layer.state_dict())
        assert torch.equal(twin(x), layer(x))


def test_kernels_first_made_without_memory_are_the_same_later(group):
    """They are shared by all layers, so nothing without numbers may be kept."""
    options = {"sigma": 1.234 + group.dim / 100}  # as no other test has it
    kernels = VoxelKernels(group, (3,) * group.dim, spectrum=sf.kernels.Spectrum(**options))
    with torch.device("meta"):
        assert kernels.functions(1).values.device.type == "cpu"
        sf.nn.Conv(FieldType(group, (1, 1)), FieldType(group, (1, 1)), kernel_size=3, spectrum=kernels.spectrum)
    assert kernels.functions(1).values.isfinite().all()


def test_precisions_are_compared_without_memory_as_well(group):
    with torch.device("meta"):
        conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3)
    with pytest.raises(ValueError, match=r"Conv has weights of torch.float32, got a field of torch.float64"):
        conv(conv.in_type.randn(1, 4, dtype=torch.float64, device="meta"))


@pytest.mark.parametrize("make", LAYERS)
def test_fake_tensors_pass_in_eval_mode(group, make):
    layer = make(group).eval()
    x = input_it_takes(layer)
    with torch.no_grad():
        y = layer(x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            for _ in range(2):
                assert layer(mode.from_tensor(x)).shape == y.shape
        assert torch.equal(layer(x), y)


def test_fake_weights_leave_no_kernel_behind(group):
    conv, mode = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval(), FakeTensorMode()
    values = {**dict(conv.named_parameters()), **dict(conv.named_buffers())}
    fakes = {name: mode.from_tensor(value) for name, value in values.items()}
    x = conv.in_type.randn(1, 4)
    with torch.no_grad():
        with mode:
            assert functional_call(conv, fakes, (mode.from_tensor(x),)).shape[1] == gapped(group).channels
        assert conv(x).isfinite().all()
