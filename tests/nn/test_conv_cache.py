"""In eval mode a convolution keeps its kernel, and nothing that can happen to its weights makes it answer wrongly."""

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

KINDS = {
    "features": (features, gapped),
    "far-degrees": (many, many),
    "image-in": (image, features),
    "image-out": (features, image),
}


@pytest.fixture(params=KINDS)
def conv(request, group):
    """A convolution in eval mode whose kernel is in the cache."""
    into, out = KINDS[request.param]
    conv = sf.nn.Conv(into(group), out(group), kernel_size=3).eval()
    answer(conv)
    return conv


def noise(conv, batch=2):
    generator = torch.Generator().manual_seed(7)
    return conv.in_type.randn(batch, 4, generator=generator, dtype=torch.float64).to(conv.weight.dtype)


@torch.no_grad()
def answer(conv):
    return conv(noise(conv))


@torch.no_grad()
def truth(conv):
    """What a plain convolution with the kernel of the present weights gives."""
    convolve = {2: F.conv2d, 3: F.conv3d}[conv.in_type.group.dim]
    return convolve(noise(conv), conv.kernel(), padding=1)


def assert_right(conv):
    for _ in range(2):  # once freshly made, once from the cache
        assert_close(answer(conv), truth(conv))


def counted(conv, monkeypatch):
    """A list that grows by one whenever the kernel is assembled."""
    calls, assemble = [], conv.basis.assemble
    monkeypatch.setattr(conv.basis, "assemble", lambda weights: calls.append(1) or assemble(weights))
    return calls


def test_the_second_call_does_not_assemble_again(conv, monkeypatch):
    calls = counted(conv.train().eval(), monkeypatch)
    first, second = answer(conv), answer(conv)
    with torch.inference_mode():
        third = conv(noise(conv))
    assert len(calls) == 1
    assert torch.equal(first, second)
    assert torch.equal(first, third)


def test_training_and_gradients_assemble_every_time(conv, monkeypatch):
    calls = counted(conv, monkeypatch)
    for mode in (True, False):
        conv.train(mode)
        conv(noise(conv))
        conv(noise(conv))
    assert len(calls) == 4


def test_the_state_dict_holds_the_weights_only(conv):
    assert list(conv.state_dict()) == ["weight"]
    assert [name for name, _ in conv.named_parameters()] == ["weight"]


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5),
    "SGD-foreach": lambda p: torch.optim.SGD(p, lr=0.5, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.5),
    "AdamW-fused": lambda p: torch.optim.AdamW(p, lr=0.5, fused=True),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_after_an_optimizer_step(conv, make):
    """Without a change of mode: train() would drop the kernel by itself."""
    before = answer(conv)
    optimizer = make(conv.parameters())
    conv(noise(conv)).square().mean().backward()
    optimizer.step()
    assert_right(conv)
    assert not torch.allclose(answer(conv), before)


@pytest.mark.parametrize("assign", [False, True])
def test_after_loading_a_state_dict(conv, assign):
    before = answer(conv)
    other = sf.nn.Conv(conv.in_type, conv.out_type, kernel_size=3).eval()
    conv.load_state_dict(other.state_dict(), assign=assign)
    assert_right(conv)
    assert_close(answer(conv), answer(other))
    assert not torch.allclose(answer(conv), before)


CHANGES = {
    "in-place": lambda conv: conv.weight.mul_(2),
    "copied-over": lambda conv: conv.weight.copy_(torch.ones_like(conv.weight)),
    "drawn-anew": lambda conv: conv.reset_parameters(),
    "new-parameter": lambda conv: setattr(conv, "weight", nn.Parameter(2 * conv.weight)),
    "new-data": lambda conv: setattr(conv.weight, "data", 2 * conv.weight),
    "from-a-vector": lambda conv: nn.utils.vector_to_parameters(torch.randn(conv.weight.numel()), conv.parameters()),
    "through-a-view": lambda conv: conv.weight.detach()[0].zero_(),
    "averaged": lambda conv: conv.weight.lerp_(torch.zeros_like(conv.weight), 0.5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_any_change_of_the_weights(conv, change):
    before = answer(conv)
    for _ in range(2):
        with torch.no_grad():
            change(conv)
        assert_right(conv)
    assert not torch.allclose(answer(conv), before)


def test_after_a_change_of_precision_and_back(conv):
    before = answer(conv)
    conv.double()
    assert answer(conv).dtype == torch.float64
    assert_right(conv)
    assert_close(answer(conv), before.double(), rtol=1e-5, atol=1e-5)
    conv.to(torch.float32)
    assert_right(conv)
    assert_close(answer(conv), before)


def test_double_is_exact_to_double_precision(conv, float64):
    """Kernels of a layer that was made in float32 are no worse than those of one made in float64."""
    exact = sf.nn.Conv(conv.in_type, conv.out_type, kernel_size=3).eval()
    exact.load_state_dict(conv.double().state_dict())
    assert_close(answer(conv), answer(exact), rtol=0, atol=1e-14)


def test_a_deep_copy_goes_its_own_way(conv):
    before = answer(conv)
    twin = copy.deepcopy(conv)
    assert torch.equal(answer(twin), before)
    with torch.no_grad():
        twin.weight.zero_()
    assert not answer(twin).any()
    assert torch.equal(answer(conv), before)
    with torch.no_grad():
        conv.weight.mul_(2)
    assert_right(conv)
    assert not answer(twin).any()


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_pickled_convolution_comes_back_whole(conv, how):
    before = answer(conv)
    file = io.BytesIO()
    pickle.dump(conv, file) if how == "pickle" else torch.save(conv, file)
    file.seek(0)
    back = pickle.load(file) if how == "pickle" else torch.load(file, weights_only=False)
    assert torch.equal(answer(back), before)
    with torch.no_grad():
        back.weight.mul_(2)
    assert_right(back)
    assert torch.equal(answer(conv), before)


def test_the_cached_kernel_is_not_pickled(conv):
    full = len(pickle.dumps(conv))
    assert full == len(pickle.dumps(conv.train().eval()))


def test_switching_between_training_and_eval(conv):
    for _ in range(2):
        conv.train()
        assert_close(answer(conv), truth(conv))
        with torch.no_grad():
            conv.weight.data.add_(0.1)  # torch does not see this, but who trains switches modes
        conv.eval()
        assert_right(conv)


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


def test_frozen_weights_still_pass_gradients_on(conv, monkeypatch):
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


def test_in_eval_mode_weights_get_the_gradients_of_training(conv):
    found = gradients(conv, noise(conv))
    for value, right in zip(found, gradients(conv.train(), noise(conv)), strict=True):
        assert_close(value, right)


def test_a_layer_made_or_filled_in_inference_mode(group):
    """Its weights have no version to watch, so nothing may be kept that could be wrong."""
    with torch.inference_mode():
        conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval()
        for factor in (1.0, 2.0):
            conv.weight.mul_(factor)
            assert_close(conv(noise(conv)), truth(conv))


def test_precision_of_autocast_does_not_stay_behind(conv):
    conv.train().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rough = conv(noise(conv))
    assert rough.dtype == torch.bfloat16
    assert answer(conv).dtype == torch.float32
    assert_right(conv)


def test_weights_handed_in_from_outside(conv):
    before = answer(conv)
    with torch.no_grad():
        doubled = functional_call(conv, {"weight": 2 * conv.weight}, (noise(conv),))
    assert_close(doubled, 2 * before)
    assert torch.equal(answer(conv), before)


def test_an_ensemble_in_one_call(conv):
    """torch.func stacks the weights of several layers; the stacked kernel must not stay behind."""
    members = [copy.deepcopy(conv), copy.deepcopy(conv)]
    with torch.no_grad():
        members[1].weight.mul_(3)
        stacked, _ = stack_module_state(members)
        x = noise(conv)
        found = vmap(lambda weights: functional_call(conv, weights, (x,)))(stacked)
    assert_close(found, torch.stack([answer(member) for member in members]))
    assert_right(conv)
