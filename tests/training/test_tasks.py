"""Tasks: running scores in training, and the evaluation of a split."""

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from steerformer.data import IGNORE
from steerformer.runs import TrainingConfig
from steerformer.training.tasks import SegmentationTask
from training.cases import CLASSES, LabelReader, SyntheticCases


def make_task(**changes):
    return SegmentationTask(TrainingConfig(**changes), CLASSES)


def make_fabric():
    return Fabric(accelerator="cpu", devices=1)


def test_counts_give_dice_over_all_voxels():
    """Two batches, one partly ignored, against counting by hand."""
    pairs = [(torch.randn(2, 3, 5, 4), torch.randint(0, 3, (2, 5, 4))) for _ in range(2)]
    pairs[0][1][0, :2] = IGNORE
    sums = [0.0] * 4
    found = {1: [0, 0], 2: [0, 0]}
    for logits, labels in pairs:
        sums = [a + b for a, b in zip(sums, make_task().counts(logits, labels), strict=True)]
        for predicted, label in zip(logits.argmax(1).flatten().tolist(), labels.flatten().tolist(), strict=True):
            for c in (1, 2) if label != IGNORE else ():
                found[c][0] += predicted == label == c
                found[c][1] += (predicted == c) + (label == c)
    assert make_task().mean(sums) == pytest.approx(sum(2 * correct / size for correct, size in found.values()) / 2)


def test_absent_classes_do_not_count():
    labels = torch.tensor([[0, 1, 1, 0]])
    logits = nn.functional.one_hot(torch.tensor([[0, 1, 0, 0]]), 3).movedim(-1, 1).float()
    assert make_task().mean(make_task().counts(logits, labels)) == pytest.approx(2 / 3)
    assert make_task().mean(make_task().counts(logits[..., :1], labels[..., :1])) == 1.0


def test_score_of_a_split_is_the_mean_over_its_cases():
    cases = SyntheticCases()
    found = make_task(loss="dice").evaluate(make_fabric(), LabelReader((0, 2, 2)), cases)
    scores = []
    for labels in cases.labels:
        a, b = (int((labels == c).sum()) for c in (1, 2))
        scores.append((0.0 + 2 * b / (a + 2 * b)) / 2)  # a is predicted as b
    assert found.score == pytest.approx(sum(scores) / 3)
    assert found.metrics == {} and found.table is None and found.loss > 0.3


def test_nan_logits_are_detected():
    model = LabelReader()
    assert make_task().has_finite_logits(model, SyntheticCases())
    model.scale.data.fill_(math.nan)
    assert not make_task().has_finite_logits(model, SyntheticCases())
