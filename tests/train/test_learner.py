"""Single steps: accumulation, clipping, averages, precision."""

import copy

import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import nn
from torch.testing import assert_close

from steerformer.config import ConfigError
from steerformer.train import TrainingConfig
from steerformer.train.classification import Classification
from steerformer.train.devices import make_fabric
from steerformer.train.learner import Learner


def learner(model, **changes):
    config = TrainingConfig(devices=1, **changes)
    return Learner(Fabric(accelerator="cpu", devices=1), model, config, task(config))


def task(config):
    return Classification(config, ("a", "b", "c"))


def batch(count=12):
    return torch.randn(count, 5), torch.arange(count) % 3


def test_accumulated_parts_are_one_big_batch(float64):
    one = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    parts = copy.deepcopy(one)
    whole, cut = learner(one, clip=0.1), learner(parts, clip=0.1)
    for _ in range(3):
        x, labels = batch()
        loss, tally = whole.step([(x, labels)], 0.05)
        pieces = list(zip(x.split(3), labels.split(3), strict=True))
        assert cut.step(pieces, 0.05) == (pytest.approx(loss, rel=1e-12), tally)
    assert_close(parts.state_dict(), one.state_dict(), rtol=0, atol=1e-10)


def test_a_step_is_adams(float64):
    model = nn.Linear(5, 3)
    twin = copy.deepcopy(model)
    student = learner(model, optimizer="adam", weight_decay=0.1, label_smoothing=0.2)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.3, weight_decay=0.1)
    for _ in range(3):
        x, labels = batch()
        loss = F.cross_entropy(twin(x), labels, label_smoothing=0.2)
        right = int((twin(x).argmax(dim=1) == labels).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert student.step([(x, labels)], 0.3) == (pytest.approx(loss.item()), [right, 12])
    assert_close(model.state_dict(), twin.state_dict())


def test_long_gradients_are_shortened(float64):
    model = nn.Linear(5, 3)
    student = learner(model, clip=1e-3)
    seen = []
    student.optimizer.register_step_pre_hook(lambda *_: seen.append([p.grad.clone() for p in model.parameters()]))
    student.step([batch()], 0.1)
    assert torch.cat([grad.flatten() for grad in seen[0]]).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_the_average_follows_its_formula(float64):
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    student = learner(model, ema=0.5)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(1, 12):
        student.step([batch()], 0.1)
        decay = min(0.5, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value if value.is_floating_point() else value
    assert student.result is not model
    assert_close(student.result.state_dict(), expected)


def test_without_average_the_model_is_the_result():
    model = nn.Linear(5, 3)
    assert learner(model).result is model


def test_bf16_keeps_weights_in_float32():
    model = nn.Linear(5, 3)
    config = TrainingConfig(precision="bf16")
    student = Learner(make_fabric(config), model, config, task(config))
    inner = []
    model.register_forward_hook(lambda *arguments: inner.append(arguments[2].dtype))
    loss, _ = student.step([batch()], 0.1)
    assert inner == [torch.bfloat16] and model.weight.dtype == torch.float32 and 0 < loss < 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it works")
def test_fp16_needs_a_gpu():
    with pytest.raises(ConfigError, match=r"precision=fp16 needs a GPU; take bf16 or 32"):
        make_fabric(TrainingConfig(precision="fp16"))
