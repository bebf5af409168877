"""Change of the logits under rotations of the input."""

import pytest
import torch
from torch import nn

from audit.tiny import Plain, Tiny
from infer.networks import Local
from steerformer import FieldType
from steerformer.audit import logit_change
from steerformer.audit.logits import LogitChange, combine_changes


def test_steerable_logits_are_invariant_and_plain_ones_are_not(group):
    x, rotations = FieldType.image(group, 1).randn(3, 12), group.grid_rotations()[1:]
    change = logit_change(Tiny(group).eval(), x, rotations)
    assert change.worst < 1e-5 and change.agreement == 1.0 and change.rotations == len(rotations)
    assert logit_change(Plain(group).eval(), x, rotations).worst > 0.05  # the negative control


def test_common_offset_does_not_hide_a_change(group):
    """A model that is not invariant, with an offset a thousand times its logits."""
    x, plain = FieldType.image(group, 1).randn(4, 12), Plain(group).eval()
    before = logit_change(plain, x, group.grid_rotations()[1:]).worst
    with torch.no_grad():
        plain.head.bias += 1000 * plain.head.weight.abs().max()
    assert logit_change(plain, x, group.grid_rotations()[1:]).worst == pytest.approx(before, rel=1e-2)
    with pytest.raises(ValueError, match="logits of all samples are the same"):
        logit_change(plain, x[:1], group.grid_rotations()[1:])


def test_voxel_logits_are_compared_with_rotated_logits(group):
    """The oracle: a plain network, rotated by torch.rot90."""
    model, x = Local(group).eval(), torch.randn(2, 1, *(6,) * group.dim)
    R = next(R for R in group.grid_rotations() if torch.equal(model.in_type.rotate(x, R), torch.rot90(x, 1, (2, 3))))
    found = logit_change(model, x, [R])
    with torch.no_grad():
        upright, rotated = model(x), model(torch.rot90(x, 1, (2, 3)))
    expected = torch.rot90(upright, 1, (2, 3))
    mean = upright.transpose(0, 1).flatten(1).mean(1).view(1, -1, *[1] * group.dim)
    assert found.worst == pytest.approx(((rotated - expected).norm() / (upright - mean).norm()).item(), rel=1e-5)
    assert found.agreement == pytest.approx((rotated.argmax(1) == expected.argmax(1)).double().mean().item())
    assert found.worst > 0.1


def test_changes_of_several_batches_are_combined():
    found = combine_changes([LogitChange(3, 0.1, 0.5, 0.9), LogitChange(3, 0.3, 0.4, 0.7)])
    assert (found.rotations, found.worst) == (3, 0.5)
    assert (found.mean, found.agreement) == (pytest.approx(0.2), pytest.approx(0.8))


def test_model_without_in_type_is_rejected():
    with pytest.raises(TypeError, match="Linear has no in_type"):
        logit_change(nn.Linear(2, 2), torch.zeros(1, 2), [torch.eye(2).double()])


def test_no_rotations_are_rejected(group):
    with pytest.raises(ValueError, match="at least one rotation"):
        logit_change(Plain(group), torch.zeros(1, 1, *(12,) * group.dim), [])
