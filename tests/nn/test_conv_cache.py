"""Kernel cache of a convolution in eval mode: it is never stale, whatever changes the weights."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close

import steerformer as sf
from nn.layers import features, gapped, image, many
from steerformer import SO2, SO3

KINDS = {
    "features": (features, gapped),
    "far-degrees": (many, many),
    "image-in": (image, features),
    "image-out": (features, image),
}


CASES = [pytest.param((SO2, kind), id=f"SO2-{kind}") for kind in KINDS]
CASES += [pytest.param((SO3, kind), id=f"SO3-{kind}", marks=pytest.mark.slow) for kind in ("features", "far-degrees")]


@pytest.fixture(params=CASES)
def conv(request):
    """A convolution in eval mode whose kernel is in the cache."""
    group, (into, out) = request.param[0], KINDS[request.param[1]]
    conv = sf.nn.Conv(into(group), out(group), kernel_size=3).eval()
    output(conv)
    return conv


def noise(conv, batch=2):
    generator = torch.Generator().manual_seed(7)
    return conv.in_type.randn(batch, 4, generator=generator, dtype=torch.float64).to(conv.weight.dtype)


@torch.no_grad()
def output(conv):
    return conv(noise(conv))


@torch.no_grad()
def expected_output(conv):
    """Output of a plain convolution with the kernel of the current weights."""
    convolve = {2: F.conv2d, 3: F.conv3d}[conv.in_type.group.dim]
    return convolve(noise(conv), conv.kernel(), padding=1)


def assert_up_to_date(conv, case=""):
    for _ in range(2):  # assembled, then from the cache
        assert_close(output(conv), expected_output(conv), msg=lambda text: f"{case} {text}")


def with_cached_kernel(conv):
    """A copy with the same weights."""
    twin = copy.deepcopy(conv)
    output(twin)
    return twin


def counted(conv, monkeypatch):
    """A list that grows by one whenever the kernel is assembled."""
    calls, assemble = [], conv.basis.assemble
    monkeypatch.setattr(conv.basis, "assemble", lambda weights: calls.append(1) or assemble(weights))
    return calls


def test_second_call_uses_cache(conv, monkeypatch):
    calls = counted(conv.train().eval(), monkeypatch)
    first, second = output(conv), output(conv)
    with torch.inference_mode():
        third = conv(noise(conv))
    assert len(calls) == 1
    assert torch.equal(first, second)
    assert torch.equal(first, third)


def test_both_forms_of_the_kernel_are_cached(conv, monkeypatch):
    calls = counted(conv.train().eval(), monkeypatch)
    for implementation in ("direct", "spectral") * 2:
        monkeypatch.setattr(conv, "implementation", implementation)
        output(conv)
    assert len(calls) == 2


def test_training_and_gradients_bypass_cache(conv, monkeypatch):
    calls = counted(conv, monkeypatch)
    for mode in (True, False):
        conv.train(mode)
        conv(noise(conv))
        conv(noise(conv))
    assert len(calls) == 4


def test_state_dict_holds_weights_only(conv):
    assert list(conv.state_dict()) == ["weight"]
    assert [name for name, _ in conv.named_parameters()] == ["weight"]


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5),
    "SGD-foreach": lambda p: torch.optim.SGD(p, lr=0.5, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.5),
    "AdamW-fused": lambda p: torch.optim.AdamW(p, lr=0.5, fused=True),
}


def test_cache_is_valid_after_optimizer_step(conv):
    """Without a change of mode, because train() clears the cache."""
    before = output(conv)
    for name, make in OPTIMIZERS.items():
        twin = with_cached_kernel(conv)
        optimizer = make(twin.parameters())
        twin(noise(twin)).square().mean().backward()
        optimizer.step()
        assert_up_to_date(twin, name)
        assert not torch.allclose(output(twin), before), name


def test_cache_is_valid_after_load_state_dict(conv):
    before = output(conv)
    for assign in (False, True):
        twin, other = with_cached_kernel(conv), sf.nn.Conv(conv.in_type, conv.out_type, kernel_size=3).eval()
        twin.load_state_dict(other.state_dict(), assign=assign)
        assert_up_to_date(twin, f"assign={assign}")
        assert_close(output(twin), output(other))
        assert not torch.allclose(output(twin), before), assign


CHANGES = {
    "in-place": lambda conv: conv.weight.mul_(2),
    "copied-over": lambda conv: conv.weight.copy_(torch.ones_like(conv.weight)),
    "reset": lambda conv: conv.reset_parameters(),
    "new-parameter": lambda conv: setattr(conv, "weight", nn.Parameter(2 * conv.weight)),
    "new-data": lambda conv: setattr(conv.weight, "data", 2 * conv.weight),
    "from-a-vector": lambda conv: nn.utils.vector_to_parameters(torch.randn(conv.weight.numel()), conv.parameters()),
    "through-a-view": lambda conv: conv.weight.detach()[0].zero_(),
    "averaged": lambda conv: conv.weight.lerp_(torch.zeros_like(conv.weight), 0.5),
}


def test_cache_is_valid_after_any_change_of_weights(conv):
    before = output(conv)
    for name, change in CHANGES.items():
        twin = with_cached_kernel(conv)
        for _ in range(2):
            with torch.no_grad():
                change(twin)
            assert_up_to_date(twin, name)
        assert not torch.allclose(output(twin), before), name


def test_cache_is_valid_after_change_of_dtype_and_back(conv):
    before = output(conv)
    conv.double()
    assert output(conv).dtype == torch.float64
    assert_up_to_date(conv)
    assert_close(output(conv), before.double(), rtol=1e-5, atol=1e-5)
    conv.to(torch.float32)
    assert_up_to_date(conv)
    assert_close(output(conv), before)


def test_double_is_exact_to_double_precision(conv, float64):
    """A layer built in float32 is as exact after ``.double()`` as one built in float64."""
    exact = sf.nn.Conv(conv.in_type, conv.out_type, kernel_size=3).eval()
    exact.load_state_dict(conv.double().state_dict())
    assert_close(output(conv), output(exact), rtol=0, atol=1e-14)


def test_deepcopy_is_independent(conv):
    before = output(conv)
    twin = copy.deepcopy(conv)
    assert torch.equal(output(twin), before)
    with torch.no_grad():
        twin.weight.zero_()
    assert not output(twin).any()
    assert torch.equal(output(conv), before)
    with torch.no_grad():
        conv.weight.mul_(2)
    assert_up_to_date(conv)
    assert not output(twin).any()


def test_pickle_round_trip(conv):
    before = output(conv)
    for how in ("pickle", "torch"):
        file = io.BytesIO()
        pickle.dump(conv, file) if how == "pickle" else torch.save(conv, file)
        file.seek(0)
        back = pickle.load(file) if how == "pickle" else torch.load(file, weights_only=False)
        assert torch.equal(output(back), before), how
        with torch.no_grad():
            back.weight.mul_(2)
        assert_up_to_date(back, how)
        assert torch.equal(output(conv), before), how


def test_cached_kernel_is_not_pickled(conv):
    full = len(pickle.dumps(conv))
    assert full == len(pickle.dumps(conv.train().eval()))


def test_cache_is_valid_after_switching_modes(conv):
    for _ in range(2):
        conv.train()
        assert_close(output(conv), expected_output(conv))
        with torch.no_grad():
            conv.weight.data.add_(0.1)  # changes no version, but the change of mode clears the cache
        conv.eval()
        assert_up_to_date(conv)


def gradients(conv, x):
    x = x.clone().requires_grad_()
    y = conv(x)
    wanted = [t for t in (x, conv.weight) if t.requires_grad]
    return torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum(), wanted)


def test_gradients_after_inference_mode(conv):
    expected = gradients(conv.train(), noise(conv))
    conv.eval()
    with torch.inference_mode():
        conv(noise(conv))
    for found, right in zip(gradients(conv, noise(conv)), expected, strict=True):
        assert_close(found, right)


def test_frozen_weights_propagate_gradients(conv, monkeypatch):
    expected, _ = gradients(conv.train(), noise(conv))
    conv.eval().requires_grad_(False)
    with torch.inference_mode():
        conv(noise(conv))
    calls = counted(conv, monkeypatch)
    for _ in range(2):
        (found,) = gradients(conv, noise(conv))
        assert_close(found, expected)
    assert not calls
    conv.requires_grad_(True)
    assert len(gradients(conv, noise(conv))) == 2


def test_eval_mode_gradients_equal_training_gradients(conv):
    found = gradients(conv, noise(conv))
    for value, right in zip(found, gradients(conv.train(), noise(conv)), strict=True):
        assert_close(value, right)


def test_cache_is_valid_for_weights_created_in_inference_mode(group):
    """Inference tensors have no version counter."""
    with torch.inference_mode():
        conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval()
        for factor in (1.0, 2.0):
            conv.weight.mul_(factor)
            assert_close(conv(noise(conv)), expected_output(conv))


def test_autocast_does_not_change_the_cached_dtype(conv):
    conv.train().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rough = conv(noise(conv))
    assert rough.dtype == torch.bfloat16
    assert output(conv).dtype == torch.float32
    assert_up_to_date(conv)


def test_functional_call_bypasses_cache(conv):
    before = output(conv)
    with torch.no_grad():
        doubled = functional_call(conv, {"weight": 2 * conv.weight}, (noise(conv),))
    assert_close(doubled, 2 * before)
    assert torch.equal(output(conv), before)


def test_vmap_ensemble_bypasses_cache(conv):
    """torch.func stacks the weights of several layers; their kernel must not be cached."""
    members = [copy.deepcopy(conv), copy.deepcopy(conv)]
    with torch.no_grad():
        members[1].weight.mul_(3)
        stacked, _ = stack_module_state(members)
        x = noise(conv)
        found = vmap(lambda weights: functional_call(conv, weights, (x,)))(stacked)
    assert_close(found, torch.stack([output(member) for member in members]))
    assert_up_to_date(conv)
