"""The EMA of the weights, against a plain loop over numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import steerformer as sf
from steerformer import models
from steerformer.training import Reporter, train_run
from steerformer.training.checkpointing import load_checkpoint
from steerformer.training.ema import EMA
from steerformer.training.loop import TrainingLoop
from training import tiny
from training.interruptions import InterruptAtStep, PowerCutError


def reference_ema(trajectory, decay):
    """``a <- d a + (1 - d) w`` with ``d = min(decay, (1 + step) / (10 + step))``, number by number.

    The trajectory starts with the initial weights, which are the first average.
    """
    averages = list(trajectory[0])
    for step in range(1, len(trajectory)):
        d = min(decay, (1 + step) / (10 + step))
        for i, weight in enumerate(trajectory[step]):
            averages[i] = d * averages[i] + (1 - d) * weight
    return averages


def numbers(state):
    """All floating-point values of a state dict, as Python floats."""
    return [number for value in state.values() if value.is_floating_point() for number in value.flatten().tolist()]


def small_model():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


def train_randomly(model, steps, update):
    """Change weights and running statistics at random; returns their trajectory, initial ones included."""
    trajectory = [numbers(model.state_dict())]
    for _ in range(steps):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
        model(torch.randn(8, 4))
        update(model)
        trajectory.append(numbers(model.state_dict()))
    return trajectory


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9999])  # without average, with a warm-up of 8 steps, warm-up only
def test_ema_follows_its_formula(float64, decay):
    model = small_model()
    ema = EMA(model, decay)
    trajectory = train_randomly(model, 15, ema.update_parameters)
    found = numbers(ema.module.state_dict())
    assert found == pytest.approx(reference_ema(trajectory, decay), rel=1e-13, abs=1e-14)
    assert numbers(model.state_dict()) == trajectory[-1]


def test_first_update_keeps_two_elevenths_of_the_initial_weights(float64):
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(11.0)
    ema = EMA(model, 0.9)
    model.weight.data.fill_(22.0)
    ema.update_parameters(model)
    assert ema.module.weight.item() == pytest.approx(2 / 11 * 11 + 9 / 11 * 22, rel=1e-15)


def discarding_initial_weights(model):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)


def without_warmup(model):
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    ema.n_averaged.fill_(1)
    return ema


def without_statistics(model):
    def update(averages, weights, step):
        torch._foreach_lerp_(averages, weights, 1 - min(0.5, (1 + int(step)) / (10 + int(step))))

    ema = AveragedModel(model, multi_avg_fn=torch.no_grad()(update))
    ema.n_averaged.fill_(1)
    return ema


@pytest.mark.parametrize("make", [discarding_initial_weights, without_warmup, without_statistics])
def test_reference_rejects_other_averages(float64, make):
    """Negative control: torch's defaults would not pass the test of the formula."""
    model = small_model()
    ema = make(model)
    trajectory = train_randomly(model, 3, ema.update_parameters)
    assert numbers(ema.module.state_dict()) != pytest.approx(reference_ema(trajectory, 0.5), rel=1e-6)


def test_counters_are_copied(float64):
    model = small_model()
    ema = EMA(model, 0.5)
    train_randomly(model, 4, ema.update_parameters)
    assert ema.module[1].num_batches_tracked.item() == model[1].num_batches_tracked.item() == 4


def test_restored_ema_continues_its_warmup(float64):
    model = small_model()
    ema = EMA(model, 0.9)
    train_randomly(model, 3, ema.update_parameters)
    restored = EMA(small_model(), 0.9)
    restored.load_state_dict(copy.deepcopy(ema.state_dict()))
    train_randomly(model, 3, lambda model: (ema.update_parameters(model), restored.update_parameters(model)))
    tiny.assert_same_bits(dict(restored.state_dict()), dict(ema.state_dict()))


def test_constants_of_a_steerable_network_stay_exact():
    """Constants are buffers outside the state dict; averaging equal values must not round them."""
    model = models.build(tiny.MODEL | {"depth": 1, "num_heads": 2})
    ema = EMA(model, 0.7)
    constants = {name: value.clone() for name, value in model.named_buffers() if name not in model.state_dict()}
    assert constants
    for _ in range(5):
        ema.update_parameters(model)
    for name, value in constants.items():
        assert torch.equal(ema.module.get_buffer(name), value), name


def test_evaluation_sees_every_update():
    """Kernels that eval mode caches are assembled again after an update in place."""
    model = models.build(tiny.MODEL)
    ema = EMA(model, 0.9)
    x = torch.randn(2, 1, 28, 28)
    with torch.no_grad():
        before = ema.module.eval()(x)
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        ema.update_parameters(model)
        after, fresh = ema.module(x), models.build(tiny.MODEL).eval()
        fresh.load_state_dict(ema.module.state_dict())
        torch.testing.assert_close(after, fresh(x), rtol=0, atol=0)
    assert not torch.allclose(after, before, atol=1e-4)


class Recorder(Reporter):
    """Records the weights after each step."""

    def __init__(self, monkeypatch):
        self.trajectory, self.loop = [], None
        train = TrainingLoop.train

        def recorded(loop):
            self.loop = loop
            self._record()
            train(loop)

        monkeypatch.setattr(TrainingLoop, "train", recorded)

    def step(self, **_):
        self._record()

    def _record(self):
        self.trajectory.append(numbers(self.loop.learner.model.state_dict()))


def test_checkpoint_has_the_ema_of_all_steps(tmp_path, monkeypatch):
    recorder = Recorder(monkeypatch)
    train_run(tiny.experiment(epochs=2), tmp_path / "run", reporter=recorder)
    assert len(recorder.trajectory) == 1 + 2 * tiny.STEPS
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["learner"]["ema"]
    assert state["n_averaged"] == 1 + 2 * tiny.STEPS
    expected = reference_ema(recorder.trajectory, 0.9)
    assert numbers(state) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert numbers(state) != pytest.approx(recorder.trajectory[-1], rel=1e-2)


def test_resumed_run_has_the_ema_of_all_steps(tmp_path, monkeypatch):
    config = tiny.experiment(epochs=2, checkpoint_every=1e-9)

    class Interrupted(Recorder, InterruptAtStep):
        def __init__(self, monkeypatch):
            InterruptAtStep.__init__(self, at=tiny.STEPS + 2)
            Recorder.__init__(self, monkeypatch)

        def step(self, **_):
            Recorder.step(self)
            InterruptAtStep.step(self)

    first = Interrupted(monkeypatch)
    with pytest.raises(PowerCutError):
        train_run(config, tmp_path / "run", reporter=first)
    monkeypatch.undo()
    second = Recorder(monkeypatch)
    train_run(config, tmp_path / "run", resume=True, reporter=second)
    trajectory = first.trajectory[:-1] + second.trajectory[1:]  # the interrupted step is repeated
    assert len(trajectory) == 1 + 2 * tiny.STEPS and second.trajectory[0] == first.trajectory[-2]
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["learner"]["ema"]
    assert numbers(state) == pytest.approx(reference_ema(trajectory, 0.9), rel=1e-5, abs=1e-6)


def test_constants_are_not_averaged(monkeypatch):
    """They are equal in both models, and many times as large as the weights."""
    features = sf.FieldType(sf.SO3, (4, 2))
    model, seen, lerp = sf.nn.Conv(features, features, kernel_size=5), [], torch._foreach_lerp_
    monkeypatch.setattr(torch, "_foreach_lerp_", lambda a, *rest: seen.extend(a) or lerp(a, *rest))
    ema = EMA(model, 0.5)
    ema.update_parameters(model)
    assert sum(x.numel() for x in seen) == sum(x.numel() for x in model.state_dict().values())
    assert sum(x.numel() for x in seen) < 0.1 * sum(x.numel() for x in model.buffers())
    assert all(torch.equal(a, b) for a, b in zip(ema.module.buffers(), model.buffers(), strict=True))


def test_shared_weights_are_averaged_once(float64):
    layer = nn.Linear(1, 1, bias=False)
    model = nn.Sequential(layer, layer)
    layer.weight.data.fill_(11.0)
    ema = EMA(model, 0.9)
    layer.weight.data.fill_(22.0)
    ema.update_parameters(model)
    assert ema.module[0].weight is ema.module[1].weight
    assert ema.module[0].weight.item() == pytest.approx(20.0, rel=1e-15)
