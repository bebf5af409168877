"""``steerformer evaluate`` for classifiers."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from steerformer import data, open_run
from steerformer.cli import app
from steerformer.infer.classification import equally_spaced_rotations, rotation_averaged_probabilities


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_metrics_agree_with_those_of_training(runs):
    result = run("evaluate", runs / "steerable")
    assert result.exit_code == 0, result.output
    found = json.loads((runs / "steerable" / "evaluation-test.json").read_text())
    trained = json.loads((runs / "steerable" / "metrics.json").read_text())
    assert found["accuracy"] == trained["test_accuracy"] and found["confusion"] == trained["confusion"]
    assert found["samples"] == 6 and found["classes"] == ["bar", "spot"]
    assert f"{found['accuracy']:.2%}" in result.output and "6 samples" in result.output


def test_rotations_and_overrides_are_in_the_file_and_its_name(runs):
    result = run("evaluate", runs / "plain", "data.seed=3", "--rotations", 4, "--split", "validation")
    assert result.exit_code == 0, result.output
    found = json.loads((runs / "plain" / "evaluation-validation-rotations4-seed-3.json").read_text())
    assert found["rotations"] == 4 and found["changes"] == ["data.seed=3"] and found["data"]["seed"] == 3
    assert found["samples"] == 4 and found["split"] == "validation"
    assert not [file.name for file in (runs / "plain").iterdir() if file.name.endswith(".part")]


def test_averaging_over_90_degree_rotations_changes_only_a_plain_model(runs):
    """An invariant model gives the same probabilities four times; the plain one is the negative control."""
    for name, changes in (("steerable", False), ("plain", True)):
        opened = open_run(runs / name)
        samples = data.load(opened.config.data).test
        rotations = (equally_spaced_rotations(opened.model.in_type.group, count) for count in (1, 4))
        once, four = (rotation_averaged_probabilities(opened.model, samples, some)[0] for some in rotations)
        assert ((once - four).abs().max().item() > 1e-4) is changes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "is not a run folder"),
        (["steerable", "model.size=9"], "only data.* can be changed"),
        (["steerable", "data.sizes=9"], "did you mean 'size'"),
        (["steerable", "data.size=9"], "the model takes samples of shape"),
        (["steerable", "data.root=nowhere"], "nowhere"),
        (["steerable", "--split", "validation", "data.validation=0"], "no samples"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(runs, arguments, words):
    result = run("evaluate", runs / arguments[0], *arguments[1:])
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_full_disk_leaves_no_partial_file(runs, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = sorted((runs / "plain").iterdir())
    result = run("evaluate", runs / "plain", "data.seed=9")
    assert result.exit_code == 2 and "No space left on device" in result.stderr
    assert sorted((runs / "plain").iterdir()) == before


def test_model_of_another_run_is_rejected(runs, tmp_path):
    shutil.copytree(runs / "plain", tmp_path / "mixed")
    shutil.copy(runs / "steerable" / "best.safetensors", tmp_path / "mixed")
    result = run("evaluate", tmp_path / "mixed")
    assert result.exit_code == 2 and "holds another model than config.yaml describes" in result.output
    assert not (tmp_path / "mixed" / "evaluation-test.json").exists()


def test_truncated_model_is_rejected(runs, tmp_path):
    shutil.copytree(runs / "plain", tmp_path / "half")
    path = tmp_path / "half" / "best.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    result = run("evaluate", tmp_path / "half")
    assert result.exit_code == 2 and "it may be truncated" in result.output


def test_data_with_other_classes_are_rejected(runs, tmp_path):
    shutil.copytree(open_run(runs / "plain").config.data.root, tmp_path / "other")
    (tmp_path / "other" / "bar").rename(tmp_path / "other" / "dot")
    result = run("evaluate", runs / "plain", f"data.root={tmp_path / 'other'}")
    assert result.exit_code == 2 and "the run has the classes bar, spot, but the data have dot, spot" in result.output
