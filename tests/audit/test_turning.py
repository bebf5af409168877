"""Logits, accuracy, averaged probabilities and attention of models whose input turns."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from audit.tiny import Plain, Tiny
from steerformer import SO2, SO3, FieldType
from steerformer.audit import (
    accuracy_by_angle,
    averaged_probabilities,
    check_model,
    equally_spaced,
    interpolation,
    judge,
    logit_change,
    random_rotations,
    received_attention,
    some_samples,
    standard_error,
    sweep_axes,
    upright,
)
from steerformer.data import ModelNet10Config, RotatedMNISTConfig


class Brightest(nn.Module):
    """Which half, upper or lower, is brighter: known to be wrong after half a turn."""

    def __init__(self, group):
        super().__init__()
        self.in_type, self.out_type = FieldType.image(group, 1), FieldType.image(group, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        first, second = x.flatten(3).sum(-1)[:, 0].chunk(2, dim=1)
        return self.scale * torch.stack([first.sum(1), second.sum(1)], dim=1)


def halves(group, count=6, size=8):
    """Volumes whose first or second half along the first axis is lit."""
    labels = torch.arange(count) % 2
    x = torch.zeros(count, 1, *(size,) * group.dim)
    for i, label in enumerate(labels.tolist()):
        x[i, 0].narrow(0, label * size // 2, size // 2).fill_(1.0)
    return x, labels


def test_steerable_logits_stay_and_plain_ones_do_not(group):
    x = FieldType.image(group, 1).randn(3, 12)
    steerable, plain = Tiny(group).eval(), Plain(group)
    plain(x)
    turns = group.grid_rotations()[1:]
    change = logit_change(steerable, x, turns)
    assert change.worst < 1e-5 and change.agreement == 1.0 and change.rotations == len(turns)
    assert logit_change(plain.eval(), x, turns).worst > 0.05


def test_what_all_logits_share_does_not_hide_a_change(group):
    """A model that is not invariant, with an offset a thousand times its logits."""
    x = FieldType.image(group, 1).randn(4, 12)
    plain = Plain(group)
    plain(x)
    plain.eval()
    honest = logit_change(plain, x, group.grid_rotations()[1:]).worst
    last = [module for module in plain.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.bias += 1000 * last.weight.abs().max()
    assert logit_change(plain, x, group.grid_rotations()[1:]).worst == pytest.approx(honest, rel=1e-2)
    with pytest.raises(ValueError, match="logits of all samples are the same"):
        logit_change(plain, x[:1], group.grid_rotations()[1:])


def test_the_check_tells_a_steerable_model_from_a_plain_one(group):
    x, labels = FieldType.image(group, 1).randn(4, 12), torch.tensor([0, 1, 2, 0])
    plain = Plain(group)
    plain(x)
    ticks = []
    good = check_model(Tiny(group).eval(), x, labels, angles=(0, 90), rotations=2, progress=lambda: ticks.append(1))
    bad = check_model(plain.eval(), x, labels, angles=(0, 90), rotations=2)
    assert good.is_equivariant and not bad.is_equivariant
    assert good.as_json()["is_equivariant"] is True
    assert len(ticks) == 2 * len(sweep_axes(group))


def test_accuracy_falls_where_the_answer_turns_over(group):
    x, labels = halves(group)
    found = accuracy_by_angle(Brightest(group), x, labels, [0, 180, 360], batch_size=4)
    assert all(values[0] == values[2] == 1.0 for values in found.values())
    # half a turn about any axis but the first swaps the halves
    assert [values[1] for values in found.values()] == ([0.0] if group is SO2 else [1.0, 0.0, 0.0])


def test_probabilities_are_averaged_over_rotations():
    """The oracle: the mean of softmax, by hand, over the four quarter turns of each image."""
    model, x = Plain(SO2).eval(), torch.rand(5, 1, 12, 12)
    model(x)
    scores, labels, single = averaged_probabilities(
        model, TensorDataset(x, torch.arange(5)), equally_spaced(SO2, 4), batch_size=2
    )
    with torch.no_grad():
        views = [model(torch.rot90(x, turns, (2, 3))).softmax(1) for turns in range(4)]
    expected = sum(views) / 4
    assert single == sum((view.argmax(1) == torch.arange(5)).sum().item() for view in views) / 20
    assert torch.allclose(scores, expected, atol=1e-6)
    assert labels.tolist() == [0, 1, 2, 3, 4]
    alone, *_ = averaged_probabilities(model, TensorDataset(x, torch.arange(5)), equally_spaced(SO2, 1))
    assert not torch.allclose(scores, alone, atol=1e-3)


def test_equally_spaced_rotations_of_space_keep_the_last_axis():
    turns = equally_spaced(SO3, 8)
    assert torch.equal(turns[0], torch.eye(3, dtype=torch.float64))
    assert all(torch.allclose(R[:, 2], torch.tensor([0.0, 0.0, 1.0]).double()) for R in turns)


def test_random_rotations_depend_on_the_seed_alone(group):
    first, again, other = (torch.stack(random_rotations(group, 3, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_attention_received_turns_with_the_input_and_has_mean_one(group):
    model, x = Tiny(group).eval(), FieldType.image(group, 1).randn(2, 12)
    (found,) = received_attention(model, x)
    assert found.shape == (2, *(6,) * group.dim)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-5)
    R = group.grid_rotations()[1]
    (turned,) = received_attention(model, model.in_type.rotate(x, R))
    assert torch.allclose(turned, model.in_type.rotate(found[:, None], R)[:, 0], atol=1e-5)
    assert not torch.allclose(turned, found, atol=1e-5)
    assert received_attention(Plain(group), x) == []


def test_judging_counts_what_is_right():
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
    found = judge(scores, torch.tensor([0, 1, 1, 1]), ("a", "b", "c"))
    assert found.accuracy == 0.75 and found.samples == 4
    assert found.standard_error == pytest.approx(math.sqrt(0.75 * 0.25 / 4))
    assert found.per_class == {"a": 1.0, "b": pytest.approx(2 / 3), "c": None}
    assert found.confusion == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert standard_error(1.0, 10) == 0.0


def test_samples_are_spread_over_the_whole_set():
    x, labels = some_samples(TensorDataset(torch.arange(10.0)[:, None], torch.arange(10)), 4)
    assert labels.tolist() == [0, 3, 6, 9] and x.shape == (4, 1)
    assert len(some_samples(TensorDataset(torch.zeros(3, 1), torch.zeros(3)), 50)[0]) == 3
    with pytest.raises(ValueError, match="no samples"):
        some_samples(TensorDataset(torch.zeros(0, 1), torch.zeros(0)), 4)


def test_test_samples_are_taken_upright_where_the_data_have_them():
    assert upright(RotatedMNISTConfig()).rotate_test is False
    assert upright(ModelNet10Config(test_rotation="so3")).test_rotation == "none"
    assert interpolation(ModelNet10Config()) == "nearest"
    assert interpolation(ModelNet10Config(occupancy="gaussian")) == interpolation(RotatedMNISTConfig()) == "bilinear"


def test_models_that_do_not_tell_their_type_are_named():
    with pytest.raises(TypeError, match="Linear does not tell its in_type"):
        logit_change(nn.Linear(2, 2), torch.zeros(1, 2), [torch.eye(2).double()])
