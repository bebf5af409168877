"""What a run leaves behind, and how it ends."""

import csv
import json
import platform
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch

import steerformer as sf
from steerformer import data, models
from steerformer.config import ConfigError
from steerformer.train import Interrupted, Reporter, open_run, run
from steerformer.train.evaluate import accuracy, confusion, predict_logits
from steerformer.train.logs import Logs, columns
from steerformer.train.state import State
from steerformer.train.tensorboard import ScalarWriter
from train.tiny import MODEL, experiment

FILES = {"config.yaml", "environment.json", "metrics.csv", "metrics.json", "best.safetensors", "last.ckpt"}


class Listening(Reporter):
    def __init__(self):
        self.steps, self.rows = [], []

    def step(self, **figures):
        self.steps.append(figures)

    def epoch(self, row, *, best):
        self.rows.append((row, best))


@pytest.fixture(scope="module")
def heard():
    return Listening()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, heard):
    return run(
        experiment(epochs=6, learning_rate=0.05, log_every=4), tmp_path_factory.mktemp("runs") / "a", reporter=heard
    )


def figures(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_a_run_folder_holds_everything_and_nothing_half_written(folder):
    assert {path.name for path in folder.iterdir()} == FILES | {"tensorboard"}
    assert len(list((folder / "tensorboard").iterdir())) == 1


def test_it_learns(folder):
    """Ten classes: a guess would be right once in ten times."""
    history = figures(folder)["history"]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["train_accuracy"] > 0.25


def test_the_figures_are_those_of_the_model_that_is_kept(folder):
    opened = open_run(folder)
    assert opened.config == experiment(epochs=6, learning_rate=0.05, log_every=4)
    assert not opened.model.training
    splits = data.load(opened.config.data)
    found = figures(folder)
    logits = predict_logits(opened.model, splits.test)
    assert found["test_accuracy"] == pytest.approx(accuracy(logits, splits.test.labels))
    assert found["confusion"] == confusion(logits, splits.test.labels, 10).tolist()
    best = found["history"][found["best_epoch"] - 1]
    logits = predict_logits(opened.model, splits.validation)
    assert best["validation_accuracy"] == pytest.approx(accuracy(logits, splits.validation.labels))
    assert best["validation_accuracy"] == max(row["validation_accuracy"] for row in found["history"])


def test_the_json_file_has_the_parameters_and_the_end(folder):
    found = figures(folder)
    assert found["parameters"] == sum(p.numel() for p in models.build(MODEL).parameters())
    assert found["finished"] and found["epochs"] == 6 and found["seconds"] > 0
    assert found["classes"] == [str(digit) for digit in range(10)]


def test_the_table_has_a_row_an_epoch(folder, heard):
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [float(row["train_loss"]) for row in rows] == [row["train_loss"] for row, _ in heard.rows]
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4, 5, 6]


def test_who_listens_hears_every_step(folder, heard):
    assert [(f["epoch"], f["step"]) for f in heard.steps] == [(e, s) for e in range(1, 7) for s in range(1, 4)]
    assert heard.steps[2]["loss"] == heard.rows[0][0]["train_loss"]


def test_the_environment_names_versions_and_machine(folder):
    found = json.loads((folder / "environment.json").read_text())
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["steerformer"] == sf.__version__
    assert found["threads"] == torch.get_num_threads() and found["cores"] >= 1 and found["processor"]
    assert found["started"].endswith("+00:00")


def test_tensorboard_reads_the_curves(folder):
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
    assert curve == pytest.approx([row["validation_loss"] for row in figures(folder)["history"]])


def test_without_validation_the_last_weights_are_kept(tmp_path):
    found = run(experiment(data={"validation": 0}, epochs=2, ema=None), tmp_path / "run")
    assert figures(found)["best_epoch"] == 2
    assert [row["validation_accuracy"] for row in figures(found)["history"]] == [None, None]
    last = torch.load(found / "last.ckpt", weights_only=True)["learner"]["model"]
    for name, value in open_run(found).model.state_dict().items():
        assert torch.equal(value, last[name])


def test_patience_ends_a_run_that_makes_no_progress(tmp_path):
    found = run(experiment(epochs=30, learning_rate=1e-30, ema=None, patience=2), tmp_path / "run")
    history = figures(found)["history"]
    assert len(history) < 30
    assert len(history) == figures(found)["best_epoch"] + 2


def test_validations_may_be_rare_but_the_last_epoch_has_one(tmp_path):
    found = run(experiment(epochs=5, validate_every=2), tmp_path / "run")
    rows = figures(found)["history"]
    assert [row["epoch"] for row in rows if row["validation_accuracy"] is not None] == [2, 4, 5]
    assert all((row["validation_loss"] is None) == (row["validation_accuracy"] is None) for row in rows)
    best = figures(found)["best_epoch"]
    assert best == max((row for row in rows if row["validation_accuracy"] is not None), key=lambda row: (
        row["validation_accuracy"], -row["validation_loss"]))["epoch"]  # fmt: skip
    table = list(csv.DictReader((found / "metrics.csv").read_text().splitlines()))
    assert [row["validation_loss"] == "" for row in table] == [True, False, True, False, False]


def test_a_score_of_nothing_is_better_than_none():
    state = State(score="dice")
    rows = [{"epoch": 1, "validation_dice": None}, {"epoch": 2, "validation_dice": 0.0, "validation_loss": 9.0},
            {"epoch": 3, "validation_dice": None}]  # fmt: skip
    assert [state.close_epoch(row) for row in rows] == [True, True, False]


def test_patience_does_not_end_between_two_validations():
    with pytest.raises(
        ValueError, match=r"patience 4 would end between two validations; set a multiple of validate_every = 3"
    ):
        experiment(patience=4, validate_every=3)


def test_patience_needs_something_to_look_at(tmp_path):
    with pytest.raises(ConfigError, match=r"patience needs samples to validate on"):
        run(experiment(data={"validation": 0}, patience=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": {"classes": 7}}, r"model\.classes is 7, but the data have 10 classes"),
        ({"model": {"size": 32}}, r"shape \(1, 32, 32\), but the data have \(1, 28, 28\)"),
        ({"model": {"in_channels": 3}}, r"shape \(3, 28, 28\), but the data have \(1, 28, 28\)"),
        ({"batch_size": 200}, r"batch_size is 200, but there are only 60 samples"),
    ],
)
def test_model_and_data_have_to_fit(tmp_path, changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        run(experiment(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_in_double_precision_weights_are_kept_in_double_precision(tmp_path):
    found = run(experiment(epochs=1, precision="64"), tmp_path / "run")
    assert {value.dtype for value in open_run(found).model.parameters()} == {torch.float64}


MEMORY = """
import torch
from steerformer.train.memory import keep_freed_memory

def left():
    before = pages()
    torch.ones(50_000_000)
    return (pages() - before) * 4096 / 200e6

def pages():
    return int(open("/proc/self/statm").read().split()[1])

print(left(), keep_freed_memory(), left())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the switch")
def test_freed_memory_is_kept():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    before, kept, after = done.stdout.split()
    assert float(before) < 0.1 and kept == "True" and float(after) > 0.9


def test_figures_that_are_no_numbers_are_null(tmp_path):
    logs = Logs(tmp_path, first_step=0)
    row = dict.fromkeys(columns("accuracy"), float("nan")) | {"epoch": 1}
    logs.metrics(State(epoch=1, history=[row]), {"test_loss": float("inf")})
    logs.close()
    found = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert found["test_loss"] is None and found["history"][0]["train_loss"] is None


def test_tensorboard_is_quiet_and_does_not_name_the_machine(tmp_path, capfd, caplog):
    writer = ScalarWriter(tmp_path / "tensorboard")
    writer.write(1, {"loss": float("nan")})
    writer.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\.\d+", file.name)
    assert capfd.readouterr() == ("", "") and not caplog.records


class Stopping(Reporter):
    def start(self, **_):
        signal.raise_signal(signal.SIGINT)


def test_classes_are_known_from_the_start(tmp_path):
    with pytest.raises(Interrupted):
        run(experiment(), tmp_path / "run", reporter=Stopping())
    assert figures(tmp_path / "run")["classes"] == [str(digit) for digit in range(10)]


def test_an_opened_run_names_its_classes(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    names = [f"digit {number}" for number in range(10)]
    (copy / "metrics.json").write_text(json.dumps({**figures(folder), "classes": names}))
    assert open_run(copy).classes == tuple(names)
    for unknown in ('{"history": []}', "[]", "{", '{"classes": ["one"]}'):
        (copy / "metrics.json").write_text(unknown)
        assert open_run(copy).classes == tuple("0123456789")
    (copy / "metrics.json").unlink()
    assert open_run(copy).classes == tuple("0123456789")
