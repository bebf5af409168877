"""Blocks that are computed again give the same gradients, take note of a batch once, and keep less."""

import pytest
import torch
from torch.testing import assert_close

from models.small import unet

OPTIONS = {"norms": "convolution", "attention_dropout": 0.3, "depth": 2}


def step(model, x):
    torch.manual_seed(1)  # dropout
    model(x).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def pair(group, **options):
    plain, recomputed = unet(group, **options), unet(group, **options, checkpoint=True)
    recomputed.load_state_dict(plain.state_dict())
    return plain, recomputed


@pytest.mark.parametrize("training", [True, False])
def test_gradients_and_statistics_are_the_same(group, training, float64):
    plain, recomputed = (model.train(training) for model in pair(group, **OPTIONS))
    x = plain.in_type.randn(2, (6, 5, 7)[: group.dim])
    assert_close(step(recomputed, x), step(plain, x), rtol=0, atol=1e-13)
    for (name, own), (_, other) in zip(plain.named_buffers(), recomputed.named_buffers(), strict=True):
        assert torch.equal(own, other), name
    changed = any(not torch.equal(b, torch.ones_like(b)) for n, b in plain.named_buffers() if "running_rms" in n)
    assert changed == training


def test_the_momentum_is_given_back(group):
    _, recomputed = pair(group, **OPTIONS)
    step(recomputed, recomputed.in_type.randn(1, 5))
    assert {m.momentum for m in recomputed.modules() if hasattr(m, "momentum")} == {0.1}


def test_less_is_kept(group):
    def kept(model):
        bytes_of = {}

        def pack(tensor):
            bytes_of[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = model(x)
        assert out.requires_grad
        return sum(bytes_of.values())

    plain, recomputed = pair(group, **OPTIONS)
    x = plain.in_type.randn(1, (48, 48, 4)[: group.dim])
    assert kept(recomputed) < kept(plain) / 3


def test_without_gradients_nothing_is_remembered(group):
    _, recomputed = pair(group)
    with torch.no_grad():
        assert not recomputed(recomputed.in_type.randn(1, 4)).requires_grad
