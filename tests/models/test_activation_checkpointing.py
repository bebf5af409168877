"""Activation checkpointing: same gradients, running statistics updated once, less memory."""

import pytest
import torch
from torch.testing import assert_close

from models.small import unet

OPTIONS = {"norm_after": "convolution", "attention_dropout": 0.3, "depth": 2}


def step(model, x):
    torch.manual_seed(1)  # dropout
    model(x).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def pair(group, **options):
    plain, checkpointed = unet(group, **options), unet(group, **options, activation_checkpointing=True)
    checkpointed.load_state_dict(plain.state_dict())
    return plain, checkpointed


@pytest.mark.parametrize("training", [True, False])
def test_gradients_and_statistics_are_unchanged(group, training, float64):
    plain, checkpointed = (model.train(training) for model in pair(group, **OPTIONS))
    x = plain.in_type.randn(2, (6, 5, 7)[: group.dim])
    assert_close(step(checkpointed, x), step(plain, x), rtol=0, atol=1e-13)
    for (name, own), (_, other) in zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True):
        assert torch.equal(own, other), name
    changed = any(not torch.equal(b, torch.ones_like(b)) for n, b in plain.named_buffers() if "running_rms" in n)
    assert changed == training


def test_momentum_is_restored(group):
    _, checkpointed = pair(group, **OPTIONS)
    step(checkpointed, checkpointed.in_type.randn(1, 5))
    assert {m.momentum for m in checkpointed.modules() if hasattr(m, "momentum")} == {0.1}


def test_fewer_bytes_are_saved_for_backward(group):
    def saved(model):
        bytes_of = {}

        def pack(tensor):
            bytes_of[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = model(x)
        assert out.requires_grad
        return sum(bytes_of.values())

    plain, checkpointed = pair(group, **OPTIONS)
    x = plain.in_type.randn(1, (48, 48, 4)[: group.dim])
    assert saved(checkpointed) < saved(plain) / 3


def test_no_grad_keeps_no_graph(group):
    _, checkpointed = pair(group)
    with torch.no_grad():
        assert not checkpointed(checkpointed.in_type.randn(1, 4)).requires_grad
