"""``steerformer evaluate`` of a segmentation."""

import csv
import json
import os
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from steerformer import models, train
from steerformer.cli import app
from train.spots import experiment, write_spots

pytest.importorskip("monai", reason="HD95 is MONAI's, which comes with the extra medical")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    os.environ["STEERFORMER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    root = write_spots(tmp_path_factory.mktemp("spots"))
    return train.run(experiment(root, epochs=3, data={"test": 0.3}), tmp_path_factory.mktemp("runs") / "spots")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def figures(folder, name="evaluation-test"):
    return json.loads((folder / f"{name}.json").read_text())


def test_the_figures_agree_with_those_of_the_run(run_folder):
    result = run("evaluate", run_folder)
    assert result.exit_code == 0, result.output
    found, trained = figures(run_folder), json.loads((run_folder / "metrics.json").read_text())
    for key in ("dice", "dice_error", "hd95", "hd95_error", "missed", "structures", "cases"):
        assert found[key] == trained[f"test_{key}"], key
    assert found["cases"] == 3 and found["unit"] == "pixels" and found["split"] == "test"
    assert f"Dice {100 * found['dice']:.2f} ± {100 * found['dice_error']:.2f} %" in result.output
    assert "mean over classes and 3 cases" in result.output and "spot" in result.output


def test_a_table_has_each_case_and_a_picture_shows_some(run_folder):
    run("evaluate", run_folder)
    rows = list(csv.DictReader((run_folder / "evaluation-test.csv").read_text().splitlines()))
    assert (run_folder / "cases-test.csv").read_text() == (run_folder / "evaluation-test.csv").read_text()
    assert len(rows) == 3
    with Image.open(run_folder / "evaluation-test.png") as picture:
        assert min(picture.size) > 300
    seen = (run_folder / "evaluation-test.png").read_bytes()
    assert run("evaluate", run_folder, "--outlines").exit_code == 0
    assert len((run_folder / "evaluation-test.png").read_bytes()) < 0.8 * len(seen)  # there is less to see


def test_training_cases_are_judged_whole_too(run_folder):
    for changes in ((), ("data.patch=5",)):
        assert run("evaluate", run_folder, "--split", "train", *changes).exit_code == 0
    whole, patches = (figures(run_folder, f"evaluation-train{more}") for more in ("", "-patch-5"))
    assert whole["dice"] == patches["dice"] and whole["cases"] > 1


def test_turned_cases_are_other_cases(run_folder):
    result = run("evaluate", run_folder, "data.test_rotation=any", "--split", "validation")
    assert result.exit_code == 0, result.output
    found = figures(run_folder, "evaluation-validation-test_rotation-any")
    assert found["data"]["test_rotation"] == "any" and found["changes"] == ["data.test_rotation=any"]
    upright = json.loads((run_folder / "metrics.json").read_text())["history"]
    assert found["cases"] == 2 and found["dice"] not in [row["validation_dice"] for row in upright]


def test_a_structure_that_is_missed_is_named(run_folder, tmp_path):
    """A model without weights: all classes are alike to it, and the first is the background."""
    blind = tmp_path / "blind"
    shutil.copytree(run_folder, blind)
    model = models.load(blind / "best.safetensors")
    for value in model.parameters():
        value.data.zero_()
    models.save(model, blind / "best.safetensors")
    result = run("evaluate", blind)
    assert result.exit_code == 0, result.output
    found = figures(blind)
    assert found["dice"] == 0 and found["hd95"] is None and found["missed"] == 3
    names = found["structures"]["spot"]["missed"]
    assert len(names) == 3 and f"spot missed altogether in {', '.join(names)}" in result.output
    lines = (blind / "evaluation-test.csv").read_text().splitlines()
    assert [row["spot hd95"] for row in csv.DictReader(lines)] == ["missed"] * 3


def test_a_picture_that_cannot_be_drawn_is_not_claimed(run_folder, tmp_path, monkeypatch):
    """As where no case has a structure; the picture of an earlier evaluation does not stay."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "evaluation-test.png").write_text("of another day")
    monkeypatch.setattr("steerformer.infer.examples.best_median_worst", lambda scores: {})
    result = run("evaluate", folder)
    assert result.exit_code == 0 and "evaluation-test.csv" in result.output, result.output
    assert "evaluation-test.png" not in result.output and not (folder / "evaluation-test.png").exists()


def test_cases_are_predicted_within_the_memory_that_is_free(run_folder, monkeypatch):
    """One budget and one appetite for all, those of the picture included."""
    from steerformer import infer

    asked, original = [], infer.predict_logits

    def watched(model, x, *, memory, appetite, progress):
        asked.append((memory, appetite))
        progress(0.0)  # as if there were a window more
        return original(model, x, memory=memory, appetite=appetite, progress=progress)

    monkeypatch.setattr("steerformer.infer.predict_logits", watched)
    monkeypatch.setattr("steerformer.infer.memory.free_memory", lambda: 2**33)
    result = run("evaluate", run_folder)
    assert (
        result.exit_code == 0 and "3 cases were too large for the free memory, and judged in windows" in result.output
    )
    assert figures(run_folder, "evaluation-test")["in_windows"] == 3
    assert len(asked) == 6 and len({id(appetite) for _, appetite in asked}) == 1
    assert {memory for memory, _ in asked} == {asked[0][0]} and 0.8 * 2**33 < asked[0][0] < 0.8 * 2**33 + 2**32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rotations", 4], "--rotations is for classifiers"),
        (["data.patch=5", "model.degrees=3"], "only data.* can be changed"),
        (["--split", "validation", "data.validation=0"], "no samples"),
        (["data.root=nowhere"], "nowhere"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(run_folder, arguments, words):
    result = run("evaluate", run_folder, *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("tested", [True, False])
def test_train_says_what_to_type_next(tmp_path, run_folder, tested):
    root = json.loads(json.dumps(str(train.open_run(run_folder).config.data.root)))
    changes = ["training.epochs=1", f"data.root={root}", *([] if tested else ["data.test=0"])]
    result = run("train", run_folder, "--out", tmp_path / "again", *changes)
    assert result.exit_code == 0, result.output
    assert ("test dice" in result.output) == tested and "epoch 1/1  loss" in result.output
    for words in ("evaluate {} data.test_rotation=any", "check {}", "predict {} FILES... --out FOLDER"):
        assert f"steerformer {words.format(tmp_path / 'again')}" in result.output
