"""Attention maps."""

import pytest
import torch

from audit.tiny import Plain, Tiny
from steerformer import FieldType
from steerformer.audit import received_attention


def test_received_attention_is_equivariant_with_mean_one(group):
    model, x = Tiny(group).eval(), FieldType.image(group, 1).randn(2, 12)
    (found,) = received_attention(model, x)
    assert found.shape == (2, *(6,) * group.dim)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-5)
    R = group.grid_rotations()[1]
    (rotated,) = received_attention(model, model.in_type.rotate(x, R))
    assert torch.allclose(rotated, model.in_type.rotate(found[:, None], R)[:, 0], atol=1e-5)
    assert not torch.allclose(rotated, found, atol=1e-5)
    assert received_attention(Plain(group), x) == []
