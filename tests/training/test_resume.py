"""Resumed runs are bit-identical to uninterrupted ones, wherever they were killed, stopped or interrupted."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from steerformer.runs import ExperimentConfig
from steerformer.training import CheckpointError, Interrupted, Reporter, train_run
from steerformer.training.checkpointing import FORMAT, load_checkpoint, save_checkpoint
from training import tiny
from training.interruptions import InterruptAtStep, PowerCutError
from training.tiny import STEPS, assert_same_run, read_metrics

pytestmark = pytest.mark.slow

ATTENTION = {"depth": 1, "num_heads": 2, "attention_dropout": 0.2}  # in addition to dropout in the head, and EMA
VARIANTS = {
    "augmented, accumulated": {"data": {"augment": "rotate"}, "accumulate": 2},
    "without EMA": {"ema": None, "optimizer": "adam", "schedule": "onecycle"},
}


def values(*, epochs=2, **changes):
    return tiny.values(model=ATTENTION, epochs=epochs, **changes)


def experiment(**changes):
    return ExperimentConfig.model_validate(values(**changes))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """An uninterrupted run; only read."""
    return train_run(experiment(), tmp_path_factory.mktemp("runs") / "uninterrupted")


def interrupt(config, folder, step, *, resume=False):
    with pytest.raises(PowerCutError):
        train_run(config, folder, resume=resume, reporter=InterruptAtStep(step))


@pytest.mark.parametrize("step", [1, 2, STEPS, STEPS + 1, STEPS + 2, 2 * STEPS])
def test_resume_after_any_step_is_bit_identical(uninterrupted, tmp_path, step):
    config = experiment(checkpoint_every=1e-9)
    interrupt(config, tmp_path / "run", step)
    train_run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", uninterrupted)


def test_checkpoint_without_a_later_key_resumes_with_its_default(uninterrupted, tmp_path):
    """A key that did not exist when the checkpoint was written has its default value."""
    config = experiment(checkpoint_every=1e-9)
    interrupt(config, tmp_path / "run", STEPS + 2)
    path = tmp_path / "run" / "last.ckpt"
    content = load_checkpoint(path)
    del content["experiment"]["training"]["loss"], content["state"]["score"], content["format"]
    save_checkpoint(path, content)
    train_run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", uninterrupted)


def test_checkpoint_of_an_earlier_format_is_rejected(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    save_checkpoint(folder / "last.ckpt", load_checkpoint(folder / "last.ckpt") | {"format": FORMAT - 1})
    with pytest.raises(CheckpointError, match=r"last\.ckpt is not a checkpoint of this version"):
        train_run(experiment(), folder, resume=True)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_resume_of_other_recipes_is_bit_identical(tmp_path, changes):
    config = experiment(checkpoint_every=1e-9, **changes)
    train_run(config, tmp_path / "uninterrupted")
    interrupt(config, tmp_path / "run", STEPS + 2)
    train_run(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "uninterrupted")


def test_resume_repeats_steps_after_the_last_checkpoint(uninterrupted, tmp_path):
    """Interrupted twice, without checkpoints within epochs."""
    for step in (STEPS + 2, 2):
        interrupt(experiment(), tmp_path / "run", step, resume=step == 2)
    train_run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_after_the_current_step(uninterrupted, tmp_path, number):
    before = signal.getsignal(number)
    reporter = InterruptAtStep(STEPS + 1, lambda: signal.raise_signal(number))
    with pytest.raises(Interrupted, match="step 2 of epoch 2"):
        train_run(experiment(), tmp_path / "run", reporter=reporter)
    assert signal.getsignal(number) is before
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["state"]
    assert (state["epoch"], state["step"]) == (1, 2)
    train_run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.slow
def test_resume_after_a_kill_at_a_random_moment_is_bit_identical(tmp_path):
    epochs = 8
    changes = {"epochs": epochs, "checkpoint_every": 1e-9}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values(**changes)))
    command = [sys.executable, "-m", "steerformer", "train", "tiny.yaml", "--out", "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    checkpoint = tmp_path / "killed" / "last.ckpt"
    while not checkpoint.exists():
        assert process.poll() is None, process.stdout.read().decode()
        time.sleep(0.01)
    time.sleep(random.SystemRandom().uniform(0, 0.4))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    state = load_checkpoint(checkpoint)["state"]
    assert 0 < state["epoch"] * STEPS + state["step"] < epochs * STEPS
    train_run(experiment(**changes), tmp_path / "killed", resume=True)
    train_run(experiment(**changes), tmp_path / "uninterrupted")
    assert_same_run(tmp_path / "killed", tmp_path / "uninterrupted")


def test_resuming_a_finished_run_changes_nothing(uninterrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    before = read_metrics(folder)
    train_run(experiment(), folder, resume=True)
    after = read_metrics(folder)
    assert after["history"] == before["history"]
    assert after["test_accuracy"] == before["test_accuracy"]


def test_signal_during_the_last_validation_stops_before_the_test(uninterrupted, tmp_path):
    class StopAfterLastEpoch(Reporter):
        def epoch(self, row, *, best):
            if row["epoch"] == 2:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="before the test"):
        train_run(experiment(), tmp_path / "run", reporter=StopAfterLastEpoch())
    assert not read_metrics(tmp_path / "run")["finished"]
    train_run(experiment(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", uninterrupted)
    starts = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert len(starts["earlier"]) == 1 and starts["earlier"][0]["started"] <= starts["started"]


def test_epochs_may_be_added(tmp_path):
    train_run(experiment(schedule="constant", epochs=2), tmp_path / "run")
    train_run(experiment(schedule="constant", epochs=3), tmp_path / "run", resume=True)
    train_run(experiment(schedule="constant", epochs=3), tmp_path / "uninterrupted")
    assert_same_run(tmp_path / "run", tmp_path / "uninterrupted")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python's, about torch's data loader workers
def test_workers_do_not_change_the_result(uninterrupted, tmp_path):
    assert_same_run(train_run(experiment(workers=2), tmp_path / "run"), uninterrupted)


def test_another_seed_changes_the_result(uninterrupted, tmp_path):
    """Negative control of the comparison."""
    other = train_run(experiment().model_copy(update={"seed": 4}), tmp_path / "run")
    with pytest.raises(AssertionError):
        assert_same_run(other, uninterrupted)
