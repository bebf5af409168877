"""Segmentation runs: metrics, tables and resume."""

import csv
import re

import pytest

from steerformer import data
from steerformer.infer.evaluation import evaluate_cases
from steerformer.metrics.case_scores import summarize_cases
from steerformer.runs import read_run_folder
from steerformer.training import train_run
from training.interruptions import InterruptAtStep, PowerCutError
from training.spots import STEPS, experiment, write_spots
from training.tiny import assert_same_run, read_metrics

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_spots(tmp_path_factory.mktemp("spots"))


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    """An uninterrupted run; only read."""
    return train_run(experiment(root), tmp_path_factory.mktemp("runs") / "uninterrupted")


def test_metrics_are_those_of_the_saved_model(folder):
    run, found = read_run_folder(folder), read_metrics(folder)
    splits = data.load(run.config.data)
    expected = summarize_cases(evaluate_cases(run.model, splits.test, range(2), classes=splits.classes))
    assert found["test_dice"] == pytest.approx(expected["dice"])
    assert found["test_hd95"] == pytest.approx(expected["hd95"])
    assert found["test_cases"] == 2 and found["classes"] == ["background", "spot"]
    assert found["test_structures"]["spot"]["dice"] == pytest.approx(expected["structures"]["spot"]["dice"])
    best = found["history"][found["best_epoch"] - 1]
    scores = evaluate_cases(run.model, splits.validation, range(2), classes=splits.classes, distances=False)
    assert best["validation_dice"] == pytest.approx(summarize_cases(scores)["dice"])
    assert best["validation_dice"] == max(row["validation_dice"] for row in found["history"])


def test_tables_have_a_row_per_epoch_and_per_case(folder):
    epochs = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    cases = list(csv.DictReader((folder / "cases-test.csv").read_text().splitlines()))
    found = read_metrics(folder)
    assert [float(row["train_dice"]) for row in epochs] == [row["train_dice"] for row in found["history"]]
    splits = data.load(read_run_folder(folder).config.data)
    assert [row["case"] for row in cases] == list(splits.test.names)
    mean = sum(float(row["spot dice"]) for row in cases) / 2
    assert found["test_dice"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("step", [2, STEPS + 1])
def test_resume_after_any_step_is_bit_identical(root, folder, tmp_path, step):
    with pytest.raises(PowerCutError):
        train_run(experiment(root), tmp_path / "run", reporter=InterruptAtStep(step))
    train_run(experiment(root), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", folder)
    assert (tmp_path / "run" / "cases-test.csv").read_text() == (folder / "cases-test.csv").read_text()


def test_training_learns(root, tmp_path):
    folder = train_run(experiment(root, epochs=8, data={"train_rotation": "none"}), tmp_path / "run")
    assert read_metrics(folder)["test_dice"] > 0.8


class MessageRecorder(InterruptAtStep):
    def __init__(self):
        super().__init__(at=1)
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def test_run_reports_other_pixel_proportions(root, tmp_path):
    reporter = MessageRecorder()
    with pytest.raises(PowerCutError):
        train_run(experiment(root, data={"size": [12, 32]}), tmp_path / "run", reporter=reporter)
    (line,) = (line for line in reporter.lines if "equivariant" in line)
    assert re.match(r"voxels are 1\.\d+ x 0\.5, but model.spacing says 1 x 1, so ", line)  # heights differ
