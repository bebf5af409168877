"""Losses against their definitions, written out with loops over voxels."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from steerformer.config import ConfigError, validate
from steerformer.data import IGNORE
from steerformer.train import TrainingConfig
from steerformer.train.losses import dice_loss, focal_loss, loss_parts, make_loss


@pytest.fixture(params=[(4, 5), (3, 4, 2)], ids=["image", "volume"])
def batch(request, float64):
    """Logits of three classes, and labels of which some do not count."""
    labels = torch.randint(0, 3, (2, *request.param))
    labels[torch.rand(labels.shape) < 0.2] = IGNORE
    return torch.randn(2, 3, *request.param), labels


def voxels(logits, labels):
    """Probabilities and label of every voxel that counts, with the number of its sample."""
    flat = logits.softmax(1).flatten(2)
    for sample, row in enumerate(labels.flatten(1).tolist()):
        for place, label in enumerate(row):
            if label != IGNORE:
                yield sample, flat[sample, :, place].tolist(), label


def test_dice_is_one_minus_its_fraction(batch):
    logits, labels = batch
    scores = []
    for sample in range(2):
        for c in (1, 2):
            mine = [(p[c], label == c) for number, p, label in voxels(logits, labels) if number == sample]
            both = sum(p for p, true in mine if true)
            scores.append((2 * both + 1) / (sum(p for p, _ in mine) + sum(true for _, true in mine) + 1))
    assert dice_loss(logits, labels).item() == pytest.approx(1 - sum(scores) / 4, rel=1e-12)


def test_focal_weighs_by_the_square_of_the_doubt(batch):
    losses = [-((1 - p[label]) ** 2) * math.log(p[label]) for _, p, label in voxels(*batch)]
    assert focal_loss(*batch).item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)


def test_cross_entropy_is_torchs_and_leaves_out_what_does_not_count(batch):
    losses = [-math.log(p[label]) for _, p, label in voxels(*batch)]
    assert make_loss("cross_entropy")(*batch).item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    smooth = make_loss("cross_entropy", label_smoothing=0.2)(*batch)
    assert_close(smooth, F.cross_entropy(*batch, label_smoothing=0.2), rtol=0, atol=0)


def test_a_sum_is_a_sum(batch):
    parts = [make_loss(name)(*batch) for name in ("cross_entropy", "dice", "focal")]
    assert_close(make_loss("cross_entropy+dice+focal")(*batch), sum(parts))


@pytest.mark.parametrize("name", ["cross_entropy", "dice", "focal", "dice+focal"])
def test_what_does_not_count_gives_no_gradient(batch, name):
    logits, labels = batch
    logits.requires_grad_()
    make_loss(name)(logits, labels).backward()
    ignored = (labels == IGNORE)[:, None].expand_as(logits)
    assert not logits.grad[ignored].any()
    assert (logits.grad[~ignored] != 0).all()


@pytest.mark.parametrize("name", ["cross_entropy", "dice", "focal", "cross_entropy+dice"])
def test_a_batch_in_which_nothing_counts_is_no_catastrophe(name):
    logits = torch.randn(1, 3, 4, 4, requires_grad=True)
    loss = make_loss(name)(logits, torch.full((1, 4, 4), IGNORE))
    loss.backward()
    assert loss.isfinite() and not logits.grad.any()


def test_a_perfect_answer_costs_nothing_and_a_sure_mistake_is_finite(float64):
    labels = torch.tensor([[0, 1, 2, 1]])
    right = 200.0 * F.one_hot(labels, 3).movedim(-1, 1)
    for name in ("cross_entropy", "dice", "focal"):
        assert make_loss(name)(right, labels).item() == pytest.approx(0, abs=1e-12)
        assert 0.5 < make_loss(name)(-right, labels).item() < 1e3


def test_the_config_knows_the_losses():
    assert TrainingConfig().loss == "cross_entropy"
    assert TrainingConfig(loss="dice + focal").loss == "dice+focal"
    for wrong in ("entropy", "dice+dice", "", "dice+"):
        with pytest.raises(ValueError, match="known losses are cross_entropy, dice, focal and sums"):
            loss_parts(wrong)
        with pytest.raises(ConfigError, match=r"training.*loss.*known losses are"):
            validate(TrainingConfig, {"loss": wrong}, where="training")
