"""Losses against their definitions, as loops over voxels."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from steerformer.data import IGNORE
from steerformer.training.losses import dice_loss, focal_loss, make_loss


@pytest.fixture(params=[(4, 5), (3, 4, 2)], ids=["image", "volume"])
def batch(request, float64):
    """Logits of three classes, and labels, some of them ignored."""
    labels = torch.randint(0, 3, (2, *request.param))
    labels[torch.rand(labels.shape) < 0.2] = IGNORE
    return torch.randn(2, 3, *request.param), labels


def voxels(logits, labels):
    """Sample number, probabilities and label of every valid voxel."""
    flat = logits.softmax(1).flatten(2)
    for sample, row in enumerate(labels.flatten(1).tolist()):
        for place, label in enumerate(row):
            if label != IGNORE:
                yield sample, flat[sample, :, place].tolist(), label


def test_dice_loss_is_one_minus_dice(batch):
    logits, labels = batch
    scores = []
    for sample in range(2):
        for c in (1, 2):
            pairs = [(p[c], label == c) for number, p, label in voxels(logits, labels) if number == sample]
            both = sum(p for p, true in pairs if true)
            scores.append((2 * both + 1) / (sum(p for p, _ in pairs) + sum(true for _, true in pairs) + 1))
    assert dice_loss(logits, labels).item() == pytest.approx(1 - sum(scores) / 4, rel=1e-12)


def test_focal_loss_is_its_definition(batch):
    losses = [-((1 - p[label]) ** 2) * math.log(p[label]) for _, p, label in voxels(*batch)]
    assert focal_loss(*batch).item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)


@pytest.mark.slow
def test_dice_and_focal_loss_are_those_of_monai(batch):
    """Versions of MONAI before 1.6 cannot ignore a label."""
    import inspect

    from monai.losses import DiceLoss, FocalLoss

    if "ignore_index" not in inspect.signature(DiceLoss).parameters:
        pytest.skip("this MONAI cannot ignore a label")
    logits, labels = batch
    options = {"to_onehot_y": True, "include_background": False, "ignore_index": IGNORE}
    dice = DiceLoss(softmax=True, smooth_nr=1, smooth_dr=1, **options)(logits, labels[:, None])
    focal = FocalLoss(use_softmax=True, gamma=2.0, to_onehot_y=True, ignore_index=IGNORE)(logits, labels[:, None])
    assert_close(dice_loss(logits, labels), dice)
    assert_close(focal_loss(logits, labels), focal, check_dtype=False, rtol=1e-5, atol=1e-6)  # MONAI's is in float32


def test_cross_entropy_is_that_of_torch_over_valid_voxels(batch):
    losses = [-math.log(p[label]) for _, p, label in voxels(*batch)]
    assert make_loss("cross_entropy")(*batch).item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    smooth = make_loss("cross_entropy", label_smoothing=0.2)(*batch)
    assert_close(smooth, F.cross_entropy(*batch, label_smoothing=0.2), rtol=0, atol=0)


def test_sums_of_losses_add_their_terms(batch):
    parts = [make_loss(name)(*batch) for name in ("cross_entropy", "dice", "focal")]
    assert_close(make_loss("cross_entropy+dice+focal")(*batch), sum(parts))


@pytest.mark.parametrize("name", ["cross_entropy", "dice", "focal", "dice+focal"])
def test_ignored_voxels_have_zero_gradient(batch, name):
    logits, labels = batch
    logits.requires_grad_()
    make_loss(name)(logits, labels).backward()
    ignored = (labels == IGNORE)[:, None].expand_as(logits)
    assert not logits.grad[ignored].any()
    assert (logits.grad[~ignored] != 0).all()


@pytest.mark.parametrize("name", ["cross_entropy", "dice", "focal", "cross_entropy+dice"])
def test_fully_ignored_batch_gives_finite_loss_and_zero_gradient(name):
    logits = torch.randn(1, 3, 4, 4, requires_grad=True)
    loss = make_loss(name)(logits, torch.full((1, 4, 4), IGNORE))
    loss.backward()
    assert loss.isfinite() and not logits.grad.any()


def test_confident_predictions_have_zero_or_finite_loss(float64):
    labels = torch.tensor([[0, 1, 2, 1]])
    right = 200.0 * F.one_hot(labels, 3).movedim(-1, 1)
    for name in ("cross_entropy", "dice", "focal"):
        assert make_loss(name)(right, labels).item() == pytest.approx(0, abs=1e-12)
        assert 0.5 < make_loss(name)(-right, labels).item() < 1e3
