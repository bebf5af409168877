"""A run that is killed, stopped or broken anywhere ends, once resumed, with the bits of one that was not."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from steerformer.train import Interrupted, Reporter, run
from steerformer.train.checkpoint import load_checkpoint, save_checkpoint
from train import tiny
from train.tiny import assert_same_run

STEPS = 3  # an epoch: 60 training samples, 20 at a time
ATTENTION = {"depth": 1, "num_heads": 2, "attention_dropout": 0.2}  # beside the head's dropout and the moving average
VARIANTS = {
    "augmented, in parts": {"data": {"augment": "rotate"}, "accumulate": 2},
    "without average": {"ema": None, "optimizer": "adam", "schedule": "onecycle"},
}


def values(**changes):
    return tiny.values(model=ATTENTION, **changes)


def experiment(**changes):
    return tiny.experiment(model=ATTENTION, **changes)


class PowerCutError(Exception):
    pass


class Breaking(Reporter):
    """Ends the run in the middle of a step's bookkeeping."""

    def __init__(self, at, action):
        self.at, self.action, self.steps = at, action, 0

    def step(self, **_):
        self.steps += 1
        if self.steps == self.at:
            self.action()


def cut_power():
    raise PowerCutError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbs."""
    return run(experiment(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("step", [1, 2, STEPS, STEPS + 1, 2 * STEPS + 2, 3 * STEPS])
def test_broken_after_any_step_it_goes_on_with_the_same_bits(whole, tmp_path, step):
    config = experiment(checkpoint_every=1e-9)
    with pytest.raises(PowerCutError):
        run(config, tmp_path / "run", reporter=Breaking(step, cut_power))
    run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_a_checkpoint_of_an_earlier_version_goes_on_with_the_same_bits(whole, tmp_path):
    """From the time when right answers were all that was counted, and cross entropy the only loss."""
    config = experiment(checkpoint_every=1e-9)
    with pytest.raises(PowerCutError):
        run(config, tmp_path / "run", reporter=Breaking(STEPS + 2, cut_power))
    path = tmp_path / "run" / "last.ckpt"
    content = load_checkpoint(path)
    right, samples = content["state"].pop("tally")
    del content["state"]["score"], content["experiment"]["training"]["loss"], content["format"]
    assert samples == content["state"]["samples"] > 0
    save_checkpoint(path, {**content, "state": {**content["state"], "correct": int(right)}})
    run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_other_ways_to_train_go_on_with_the_same_bits_as_well(tmp_path, changes):
    config = experiment(checkpoint_every=1e-9, epochs=2, **changes)
    run(config, tmp_path / "whole")
    with pytest.raises(PowerCutError):
        run(config, tmp_path / "run", reporter=Breaking(STEPS + 2, cut_power))
    run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_broken_twice_and_far_from_its_last_checkpoint(whole, tmp_path):
    for step in (STEPS + 2, 2):  # no checkpoint within epochs: steps are done again
        with pytest.raises(PowerCutError):
            run(experiment(), tmp_path / "run", resume=step == 2, reporter=Breaking(step, cut_power))
    run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_after_the_step_at_hand(whole, tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="step 2 of epoch 2"):
        run(experiment(), tmp_path / "run", reporter=Breaking(STEPS + 1, lambda: signal.raise_signal(number)))
    assert signal.getsignal(number) is before
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["state"]
    assert (state["epoch"], state["step"]) == (1, 2)
    run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_killed_at_a_random_moment_it_goes_on_with_the_same_bits(tmp_path):
    changes = {"epochs": 12, "checkpoint_every": 1e-9}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values(**changes)))
    command = [sys.executable, "-m", "steerformer", "train", "tiny.yaml", "--out", "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    checkpoint = tmp_path / "killed" / "last.ckpt"
    while not checkpoint.exists():
        assert process.poll() is None, process.stdout.read().decode()
        time.sleep(0.01)
    time.sleep(random.SystemRandom().uniform(0, 0.5))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    state = load_checkpoint(checkpoint)["state"]
    assert 0 < state["epoch"] * STEPS + state["step"] < 12 * STEPS
    run(experiment(**changes), tmp_path / "killed", resume=True)
    run(experiment(**changes), tmp_path / "whole")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_a_finished_run_resumed_stays_what_it_is(whole, tmp_path):
    before = json.loads((whole / "metrics.json").read_text())
    run(experiment(), whole, resume=True)
    after = json.loads((whole / "metrics.json").read_text())
    assert after["history"] == before["history"]
    assert after["test_accuracy"] == before["test_accuracy"]


def test_a_signal_while_the_last_epoch_is_validated_comes_before_the_test(whole, tmp_path):
    class Late(Reporter):
        def epoch(self, row, *, best):
            if row["epoch"] == 3:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="before the test"):
        run(experiment(), tmp_path / "run", reporter=Late())
    assert not json.loads((tmp_path / "run" / "metrics.json").read_text())["finished"]
    run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)
    starts = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert len(starts["earlier"]) == 1 and starts["earlier"][0]["started"] <= starts["started"]


def test_more_epochs_may_follow(tmp_path):
    run(experiment(schedule="constant"), tmp_path / "run")
    run(experiment(schedule="constant", epochs=4), tmp_path / "run", resume=True)
    run(experiment(schedule="constant", epochs=4), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of Python, about workers of torch
def test_workers_change_nothing(whole, tmp_path):
    assert_same_run(run(experiment(workers=2), tmp_path / "run"), whole)


def test_another_seed_is_another_run(whole, tmp_path):
    other = run(experiment().model_copy(update={"seed": 4}), tmp_path / "run")
    with pytest.raises(AssertionError):
        assert_same_run(other, whole)
