"""Learning rates against closed formulas and torch's schedulers; parameter groups with and without weight decay."""

import math

import pytest
import torch
from torch import nn, optim

from steerformer import models
from steerformer.runs import TrainingConfig
from steerformer.training.optimizer import learning_rate, make_optimizer
from training.tiny import MODEL

STEPS = 7


def rates(**changes):
    config = TrainingConfig(**changes)
    return [learning_rate(config, step, STEPS) for step in range(config.epochs * STEPS)]


def torch_rates(scheduler, steps, **options):
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = scheduler(optimizer, **options)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_default_step_schedule_halves_every_twenty_epochs():
    found = rates(schedule="step", epochs=45, learning_rate=0.8)
    assert found == pytest.approx([0.8] * 20 * STEPS + [0.4] * 20 * STEPS + [0.2] * 5 * STEPS)


def test_step_matches_torch_step_lr():
    found = rates(schedule="step", epochs=9, learning_rate=0.5, step_every=2, step_factor=0.3)
    expected = torch_rates(optim.lr_scheduler.StepLR, 9, step_size=2, gamma=0.3)
    assert found[::STEPS] == pytest.approx(expected)


def test_cosine_matches_torch_cosine_annealing():
    found = rates(schedule="cosine", epochs=4, learning_rate=0.5, warmup=0)
    assert found == pytest.approx(torch_rates(optim.lr_scheduler.CosineAnnealingLR, 28, T_max=28))


def test_cosine_starts_with_linear_warmup():
    found = rates(schedule="cosine", epochs=6, learning_rate=0.7, warmup=2)
    assert found[:14] == pytest.approx([0.7 * (step + 1) / 14 for step in range(14)])
    assert found[14:] == pytest.approx([0.35 * (1 + math.cos(math.pi * step / 28)) for step in range(28)])


@pytest.mark.parametrize(("warmup", "share"), [(0, 0.3), (4, 0.4)])
def test_onecycle_matches_torch_one_cycle_lr(warmup, share):
    found = rates(schedule="onecycle", epochs=10, learning_rate=0.5, warmup=warmup)
    expected = torch_rates(
        optim.lr_scheduler.OneCycleLR, 70, max_lr=0.5, total_steps=70, pct_start=share, cycle_momentum=False
    )
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("schedule", ["cosine", "onecycle", "constant", "step"])
def test_shortest_runs_have_a_positive_rate(schedule):
    config = TrainingConfig(schedule=schedule, epochs=1)
    for steps in (1, 2, 3):
        found = [learning_rate(config, step, steps) for step in range(steps)]
        assert all(0 <= rate <= config.learning_rate for rate in found) and max(found) > 0


def test_constant_schedule_is_constant_after_warmup():
    assert rates(schedule="constant", epochs=3, learning_rate=0.5, warmup=1)[6:] == [0.5] * 15


def test_adamw_does_not_decay_gains_and_biases():
    model = models.build(MODEL | {"depth": 1, "num_heads": 2})
    names = {parameter: name for name, parameter in model.named_parameters()}
    decays = {
        names[parameter]: group["weight_decay"]
        for group in make_optimizer(model, TrainingConfig(weight_decay=0.5)).param_groups
        for parameter in group["params"]
    }
    assert len(decays) == len(names)
    undecayed = {name for name, decay in decays.items() if decay == 0}
    assert {decays[name] for name in decays.keys() - undecayed} == {0.5}
    biases = {name for name in decays if name.endswith("bias")}
    gains = {name for name in decays if "norm.weight" in name}
    assert biases and gains and biases | gains <= undecayed
    assert not any(name.startswith("encoder.blocks.0.attention.query") for name in undecayed)


def test_adam_has_l2_on_everything():
    layer = nn.Linear(2, 2)
    optimizer = make_optimizer(layer, TrainingConfig(optimizer="adam", weight_decay=5e-4))
    assert type(optimizer) is optim.Adam
    assert [(len(g["params"]), g["weight_decay"]) for g in optimizer.param_groups] == [(2, 5e-4)]
