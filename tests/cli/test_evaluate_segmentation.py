"""``steerformer evaluate`` for segmentation models."""

import csv
import json
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

import steerformer as sf
from steerformer import models
from steerformer.cli import app
from steerformer.infer import evaluation
from training.spots import experiment, write_spots

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    root = write_spots(tmp_path_factory.mktemp("spots"))
    config = experiment(root, epochs=3, data={"test": 0.3})
    return sf.train(config, out=tmp_path_factory.mktemp("runs") / "spots").folder


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def metrics(folder, name="evaluation-test"):
    return json.loads((folder / f"{name}.json").read_text())


def test_metrics_agree_with_those_of_training(run_folder):
    result = run("evaluate", run_folder)
    assert result.exit_code == 0, result.output
    found, trained = metrics(run_folder), json.loads((run_folder / "metrics.json").read_text())
    for key in ("dice", "dice_error", "hd95", "hd95_error", "missed", "structures", "cases"):
        assert found[key] == trained[f"test_{key}"], key
    assert found["cases"] == 3 and found["unit"] == "pixels" and found["split"] == "test"
    assert f"Dice {100 * found['dice']:.2f} ± {100 * found['dice_error']:.2f} %" in result.output
    assert "mean over classes and 3 cases" in result.output and "spot" in result.output


def test_table_has_all_cases_and_figure_has_examples(run_folder):
    run("evaluate", run_folder)
    rows = list(csv.DictReader((run_folder / "evaluation-test.csv").read_text().splitlines()))
    assert (run_folder / "cases-test.csv").read_text() == (run_folder / "evaluation-test.csv").read_text()
    assert len(rows) == 3
    with Image.open(run_folder / "evaluation-test.png") as figure:
        assert min(figure.size) > 300
    with_scans = (run_folder / "evaluation-test.png").read_bytes()
    assert run("evaluate", run_folder, "--outlines").exit_code == 0
    assert len((run_folder / "evaluation-test.png").read_bytes()) < 0.8 * len(with_scans)


def test_training_cases_are_evaluated_whole(run_folder):
    for changes in ((), ("data.patch_size=5",)):
        assert run("evaluate", run_folder, "--split", "train", *changes).exit_code == 0
    whole, patches = (metrics(run_folder, f"evaluation-train{more}") for more in ("", "-patch_size-5"))
    assert whole["dice"] == patches["dice"] and whole["cases"] > 1


def test_rotated_cases_have_other_scores(run_folder):
    result = run("evaluate", run_folder, "data.test_rotation=any", "--split", "validation")
    assert result.exit_code == 0, result.output
    found = metrics(run_folder, "evaluation-validation-test_rotation-any")
    assert found["data"]["test_rotation"] == "any" and found["changes"] == ["data.test_rotation=any"]
    upright = json.loads((run_folder / "metrics.json").read_text())["history"]
    assert found["cases"] == 2 and found["dice"] not in [row["validation_dice"] for row in upright]


def test_missed_structures_are_listed(run_folder, tmp_path):
    """A model whose weights are 0 predicts the first class, the background, everywhere."""
    blind = tmp_path / "blind"
    shutil.copytree(run_folder, blind)
    model = models.load(blind / "best.safetensors")
    for value in model.parameters():
        value.data.zero_()
    models.save(model, blind / "best.safetensors")
    result = run("evaluate", blind)
    assert result.exit_code == 0, result.output
    found = metrics(blind)
    assert found["dice"] == 0 and found["hd95"] is None and found["missed"] == 3
    names = found["structures"]["spot"]["missed"]
    assert len(names) == 3 and f"spot missed in {', '.join(names)}" in result.output
    lines = (blind / "evaluation-test.csv").read_text().splitlines()
    assert [row["spot hd95"] for row in csv.DictReader(lines)] == ["missed"] * 3


def test_figure_without_examples_is_not_written(run_folder, tmp_path, monkeypatch):
    """As if no case had a structure; the figure of an earlier evaluation is removed."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "evaluation-test.png").write_text("of an earlier evaluation")
    monkeypatch.setattr("steerformer.infer.evaluation.best_median_worst", lambda scores: {})
    result = run("evaluate", folder)
    assert result.exit_code == 0 and "evaluation-test.csv" in result.output, result.output
    assert "evaluation-test.png" not in result.output and not (folder / "evaluation-test.png").exists()


def test_cases_are_predicted_within_the_free_memory(run_folder, monkeypatch):
    """One memory limit and one set of measurements for all cases, including the examples."""
    calls, original = [], evaluation.predict_logits

    def watched(model, x, *, memory, window_memory, progress):
        calls.append((memory, window_memory))
        progress(0.0)  # as if there were one more window
        return original(model, x, memory=memory, window_memory=window_memory, progress=progress)

    monkeypatch.setattr(evaluation, "predict_logits", watched)
    monkeypatch.setattr("steerformer.infer.memory.free_memory", lambda: 2**33)
    result = run("evaluate", run_folder)
    assert result.exit_code == 0
    assert "3 cases did not fit into the free memory and were evaluated in windows" in result.output
    assert metrics(run_folder, "evaluation-test")["in_windows"] == 3
    assert len(calls) == 6 and len({id(window_memory) for _, window_memory in calls}) == 1
    assert {memory for memory, _ in calls} == {calls[0][0]} and 0.8 * 2**33 < calls[0][0] < 0.8 * 2**33 + 2**32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rotations", 4], "rotations (--rotations) above 1 are for classifiers"),
        (["data.patch_size=5", "model.degrees=3"], "only data.* can be changed"),
        (["--split", "validation", "data.validation=0"], "no samples"),
        (["data.root=nowhere"], "nowhere"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(run_folder, arguments, words):
    result = run("evaluate", run_folder, *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("tested", [True, False])
def test_train_shows_the_next_commands(tmp_path, run_folder, tested):
    changes = [
        "training.epochs=1",
        f"data.root={sf.open_run(run_folder).config.data.root}",
        *([] if tested else ["data.test=0"]),
    ]
    result = run("train", run_folder, "--out", tmp_path / "again", *changes)
    assert result.exit_code == 0, result.output
    assert ("test dice" in result.output) == tested and "epoch 1/1  loss" in result.output
    for words in ("evaluate {} data.test_rotation=any", "check {}", "predict {} FILES... --out FOLDER"):
        assert f"steerformer {words.format(tmp_path / 'again')}" in result.output
