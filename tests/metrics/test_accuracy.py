"""Accuracy, cross entropy, confusion matrix and recall of known logits."""

import pytest
import torch

from steerformer.metrics.accuracy import accuracy, classification_scores, confusion_matrix, mean_cross_entropy

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 1.0, 0.0], [0.0, 1.0, 4.0]])
LABELS = torch.tensor([0, 1, 2, 2])


def test_accuracy_is_the_share_of_correct_predictions():
    assert accuracy(LOGITS, LABELS) == 0.75


def test_confusion_matrix_has_a_row_per_true_class():
    assert confusion_matrix(LOGITS, LABELS, 3).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert confusion_matrix(LOGITS, LABELS, 4).shape == (4, 4)


def test_mean_cross_entropy_is_its_definition():
    probabilities = LOGITS.double().exp() / LOGITS.double().exp().sum(dim=1, keepdim=True)
    expected = -probabilities[range(4), LABELS].log().mean()
    assert mean_cross_entropy(LOGITS, LABELS) == pytest.approx(expected.item())


def test_scores_have_the_recall_of_each_class():
    found = classification_scores(LOGITS, LABELS, ("a", "b", "c"))
    assert (found.samples, found.accuracy) == (4, 0.75)
    assert found.standard_error == pytest.approx((0.75 * 0.25 / 4) ** 0.5)
    assert found.per_class == {"a": 1.0, "b": 1.0, "c": 0.5}
    assert found.confusion == confusion_matrix(LOGITS, LABELS, 3).tolist()
    assert classification_scores(LOGITS[:2], LABELS[:2], ("a", "b", "c")).per_class["c"] is None
