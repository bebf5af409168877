"""One optimizer step: gradient accumulation, clipping, EMA, precision."""

import copy

import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import nn
from torch.testing import assert_close

from steerformer.config import ConfigError
from steerformer.runs import TrainingConfig
from steerformer.training.distributed import make_fabric
from steerformer.training.learner import Learner
from steerformer.training.tasks import ClassificationTask, SegmentationTask

CLASSES = ("a", "b", "c")


def make_learner(model, task=ClassificationTask, **changes):
    config = TrainingConfig(devices=1, **changes)
    return Learner(Fabric(accelerator="cpu", devices=1), model, config, task(config, CLASSES))


def batch(count=12):
    return torch.randn(count, 5), torch.arange(count) % 3


def test_accumulated_parts_equal_one_batch(float64):
    one = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    parts = copy.deepcopy(one)
    whole, accumulating = make_learner(one, clip=0.1), make_learner(parts, clip=0.1)
    for _ in range(3):
        x, labels = batch()
        loss, counts = whole.step([(x, labels)], 0.05)
        pieces = list(zip(x.split(3), labels.split(3), strict=True))
        assert accumulating.step(pieces, 0.05) == (pytest.approx(loss, rel=1e-12), counts)
    assert_close(parts.state_dict(), one.state_dict(), rtol=0, atol=1e-10)


def test_step_is_that_of_adam(float64):
    model = nn.Linear(5, 3)
    twin = copy.deepcopy(model)
    learner = make_learner(model, optimizer="adam", weight_decay=0.1, label_smoothing=0.2)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.3, weight_decay=0.1)
    for _ in range(3):
        x, labels = batch()
        loss = F.cross_entropy(twin(x), labels, label_smoothing=0.2)
        correct = int((twin(x).argmax(dim=1) == labels).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert learner.step([(x, labels)], 0.3) == (pytest.approx(loss.item()), [correct, 12])
    assert_close(model.state_dict(), twin.state_dict())


def test_deep_supervision_halves_the_weight_of_each_coarser_level(float64):
    """Oracle: the losses of both levels by hand; the score counts the finest level."""

    class Levels(nn.Module):
        def __init__(self):
            super().__init__()
            self.levels = nn.ModuleList(nn.Conv2d(1, 3, 3, padding=1) for _ in range(2))

        def forward(self, x):
            return torch.stack([level(x) for level in self.levels], dim=1)

    model, x, labels = Levels(), torch.randn(2, 1, 6, 5), torch.randint(3, (2, 6, 5))
    with torch.no_grad():
        fine, coarse = model(x).unbind(dim=1)
    expected = (F.cross_entropy(fine, labels) + 0.5 * F.cross_entropy(coarse, labels)) / 1.5
    learner = make_learner(model, SegmentationTask)
    loss, counts = learner.step([(x, labels)], 0.1)
    assert loss == pytest.approx(expected.item())
    assert counts == learner.task.counts(fine, labels)


def test_segmentation_step_adds_up_its_parts(float64):
    model = nn.Conv2d(1, 3, 3, padding=1)
    learner = make_learner(model, SegmentationTask, loss="cross_entropy+dice")
    x, labels = torch.randn(4, 1, 6, 6), torch.randint(0, 3, (4, 6, 6))
    expected = learner.task.loss(model(x), labels).item(), learner.task.counts(model(x), labels)
    loss, counts = learner.step([(x[:2], labels[:2]), (x[2:], labels[2:])], 0.1)
    assert loss == pytest.approx(expected[0], rel=1e-12) and counts == expected[1]
    assert learner.task.loss(model(x), labels).item() < loss


def test_gradients_are_clipped(float64):
    model = nn.Linear(5, 3)
    learner = make_learner(model, clip=1e-3)
    seen = []
    learner.optimizer.register_step_pre_hook(lambda *_: seen.append([p.grad.clone() for p in model.parameters()]))
    learner.step([batch()], 0.1)
    assert torch.cat([grad.flatten() for grad in seen[0]]).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_ema_is_updated_after_each_step(float64):
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    learner = make_learner(model, ema=0.5)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(1, 12):
        learner.step([batch()], 0.1)
        decay = min(0.5, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value if value.is_floating_point() else value
    assert learner.result is not model
    assert_close(dict(learner.result.state_dict()), expected, rtol=1e-13, atol=1e-14)


def test_result_without_ema_is_the_model():
    model = nn.Linear(5, 3)
    assert make_learner(model).result is model


def test_bf16_keeps_weights_in_float32():
    model = nn.Linear(5, 3)
    config = TrainingConfig(precision="bf16")
    learner = Learner(make_fabric(config), model, config, ClassificationTask(config, CLASSES))
    inner = []
    model.register_forward_hook(lambda *arguments: inner.append(arguments[2].dtype))
    loss, _ = learner.step([batch()], 0.1)
    assert inner == [torch.bfloat16] and model.weight.dtype == torch.float32 and 0 < loss < 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="works with a GPU")
def test_fp16_needs_a_gpu():
    with pytest.raises(ConfigError, match=r"precision=fp16 needs a GPU; use bf16 or 32"):
        make_fabric(TrainingConfig(precision="fp16"))
