"""The run folder that training writes, early stopping and validation."""

import csv
import json
import signal

import pytest
import torch

import steerformer as sf
from steerformer import data, models
from steerformer.config import ConfigError
from steerformer.infer.classification import classify
from steerformer.metrics.accuracy import accuracy, confusion_matrix
from steerformer.runs import read_run_folder
from steerformer.training import Interrupted, Reporter, train_run
from steerformer.training.checkpointing import load_checkpoint
from training.tiny import MODEL, STEPS, experiment, read_metrics

FILES = {"config.yaml", "environment.json", "metrics.csv", "metrics.json", "best.safetensors", "last.ckpt"}
CHANGES = {"epochs": 6, "learning_rate": 0.05, "log_every": 4}


class Recorder(Reporter):
    def __init__(self):
        self.steps, self.rows = [], []

    def step(self, **metrics):
        self.steps.append(metrics)

    def epoch(self, row, *, best):
        self.rows.append((row, best))


@pytest.fixture(scope="module")
def reported():
    return Recorder()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, reported):
    """A finished run; only read."""
    return train_run(experiment(**CHANGES), tmp_path_factory.mktemp("runs") / "a", reporter=reported)


def test_run_folder_is_complete(folder):
    assert {path.name for path in folder.iterdir()} == FILES | {"tensorboard"}
    assert len(list((folder / "tensorboard").iterdir())) == 1


def test_training_learns(folder):
    """Chance is 10 % for ten classes."""
    history = read_metrics(folder)["history"]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["train_accuracy"] > 0.25


def test_metrics_are_those_of_the_saved_model(folder):
    run = read_run_folder(folder)
    assert run.config == experiment(**CHANGES)
    assert not run.model.training
    splits = data.load(run.config.data)
    found = read_metrics(folder)
    logits = classify(run.model, splits.test)
    assert found["test_accuracy"] == pytest.approx(accuracy(logits, splits.test.labels))
    assert found["confusion"] == confusion_matrix(logits, splits.test.labels, 10).tolist()
    best = found["history"][found["best_epoch"] - 1]
    logits = classify(run.model, splits.validation)
    assert best["validation_accuracy"] == pytest.approx(accuracy(logits, splits.validation.labels))
    assert best["validation_accuracy"] == max(row["validation_accuracy"] for row in found["history"])


def test_metrics_have_parameters_and_classes(folder):
    found = read_metrics(folder)
    assert found["parameters"] == sum(p.numel() for p in models.build(MODEL).parameters())
    assert found["finished"] and found["epochs"] == 6 and found["seconds"] > 0
    assert found["classes"] == [str(digit) for digit in range(10)]


def test_table_has_a_row_per_epoch(folder, reported):
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [float(row["train_loss"]) for row in rows] == [row["train_loss"] for row, _ in reported.rows]
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4, 5, 6]


def test_reporter_gets_every_step(folder, reported):
    expected = [(epoch, step) for epoch in range(1, 7) for step in range(1, STEPS + 1)]
    assert [(found["epoch"], found["step"]) for found in reported.steps] == expected
    assert reported.steps[2]["loss"] == reported.rows[0][0]["train_loss"]


def test_environment_has_versions_and_hardware(folder):
    found = json.loads((folder / "environment.json").read_text())
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["steerformer"] == sf.__version__
    assert found["threads"] == torch.get_num_threads() and found["cores"] >= 1 and found["processor"]
    assert found["started"].endswith("+00:00")


def test_tensorboard_file_has_the_curves(folder):
    """The format: length, checksum, message, checksum; read with the library's own messages."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (folder / "tensorboard").iterdir()
    content, events = file.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        events.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    points = [(value.tag, event.step, value.simple_value) for event in events for value in event.summary.value]
    assert [step for tag, step, _ in points if tag == "step/loss"] == [4, 8, 12, 16]
    curve = [value for tag, _, value in points if tag == "epoch/validation_loss"]
    assert curve == pytest.approx([row["validation_loss"] for row in read_metrics(folder)["history"]])


def test_last_weights_are_saved_without_validation(tmp_path):
    folder = train_run(experiment(data={"validation": 0}, epochs=2, ema=None), tmp_path / "run")
    found = read_metrics(folder)
    assert found["best_epoch"] == 2
    assert [row["validation_accuracy"] for row in found["history"]] == [None, None]
    last = load_checkpoint(folder / "last.ckpt")["learner"]["model"]
    for name, value in read_run_folder(folder).model.state_dict().items():
        assert torch.equal(value, last[name])


def test_patience_stops_early(tmp_path):
    found = read_metrics(train_run(experiment(epochs=30, learning_rate=1e-30, ema=None, patience=2), tmp_path / "run"))
    assert len(found["history"]) < 30
    assert len(found["history"]) == found["best_epoch"] + 2


def test_last_epoch_is_validated_in_any_case(tmp_path):
    folder = train_run(experiment(epochs=5, validate_every=2), tmp_path / "run")
    rows = read_metrics(folder)["history"]
    validated = [row for row in rows if row["validation_accuracy"] is not None]
    assert [row["epoch"] for row in validated] == [2, 4, 5]
    assert all((row["validation_loss"] is None) == (row["validation_accuracy"] is None) for row in rows)
    best = max(validated, key=lambda row: (row["validation_accuracy"], -row["validation_loss"]))
    assert read_metrics(folder)["best_epoch"] == best["epoch"]
    table = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [row["validation_loss"] == "" for row in table] == [True, False, True, False, False]


def test_batch_larger_than_the_data_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match=r"batch_size is 200, but there are only 60 samples"):
        train_run(experiment(batch_size=200), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_double_precision_weights_are_saved_in_double_precision(tmp_path):
    folder = train_run(experiment(epochs=1, precision="64"), tmp_path / "run")
    assert {value.dtype for value in read_run_folder(folder).model.parameters()} == {torch.float64}


class InterruptAtStart(Reporter):
    def start(self, **_):
        signal.raise_signal(signal.SIGINT)


def test_class_names_are_written_at_the_start(tmp_path):
    with pytest.raises(Interrupted):
        train_run(experiment(), tmp_path / "run", reporter=InterruptAtStart())
    assert read_metrics(tmp_path / "run")["classes"] == [str(digit) for digit in range(10)]
