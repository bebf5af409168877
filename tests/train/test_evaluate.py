"""Figures of logits."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from steerformer.train.evaluate import accuracy, confusion, mean_loss, predict_logits

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [5.0, 1.0, 0.0], [0.0, 1.0, 4.0]])
LABELS = torch.tensor([0, 1, 2, 2])


def test_accuracy_counts_the_right_ones():
    assert accuracy(LOGITS, LABELS) == 0.75


def test_confusion_has_a_row_for_each_true_class():
    assert confusion(LOGITS, LABELS, 3).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert confusion(LOGITS, LABELS, 4).shape == (4, 4)


def test_mean_loss_is_the_cross_entropy():
    probabilities = LOGITS.double().exp() / LOGITS.double().exp().sum(dim=1, keepdim=True)
    expected = -probabilities[range(4), LABELS].log().mean()
    assert mean_loss(LOGITS, LABELS) == pytest.approx(expected.item())


def test_logits_come_in_order_in_eval_mode_and_leave_no_trace():
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)).train()
    x = torch.randn(10, 3)
    before, seen = torch.get_rng_state(), []
    logits = predict_logits(model, TensorDataset(x, torch.zeros(10)), batch_size=4, progress=seen.append)
    torch.testing.assert_close(logits, model[0](x))
    assert seen == [4, 4, 2]
    assert model.training and not logits.requires_grad
    assert torch.equal(torch.get_rng_state(), before)


def test_samples_take_the_precision_of_the_model():
    model = nn.Linear(3, 2).double()
    assert predict_logits(model, TensorDataset(torch.ones(2, 3), torch.zeros(2))).dtype == torch.float64
