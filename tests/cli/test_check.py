"""``steerformer check``: equivariant models pass, others fail."""

import json
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from audit.segmenters import shrink_checks
from steerformer.cli import app


@pytest.fixture(autouse=True)
def _small_checks(monkeypatch):
    shrink_checks(monkeypatch)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_steerable_model_passes(runs):
    result = run("check", runs / "steerable", "--samples", 4, "--angles", "0,30,90")
    assert result.exit_code == 0, result.output
    assert "equivariant, rotations of the grid" in " ".join(result.output.split()) and "NOT" not in result.output
    found = json.loads((runs / "steerable" / "check.json").read_text())
    assert found["is_equivariant"] and found["grid"]["worst"] < 1e-4 and found["samples"] == 4
    assert found["angles"] == [0, 30, 90] and len(found["accuracy"]["plane"]) == 3
    assert found["accuracy"]["plane"][0] == found["accuracy"]["plane"][2]
    assert {"flatten", "logits"} <= {layer["name"] for layer in found["layers_grid"]}
    assert (runs / "steerable" / "check.png").read_bytes().startswith(b"\x89PNG")


def test_plain_model_fails(runs, tmp_path):
    """The negative control."""
    result = run("check", runs / "plain", "--samples", 4, "--angles", "0,90", "--out", tmp_path / "new")
    assert result.exit_code == 1, result.output
    assert "NOT equivariant" in result.output
    assert json.loads((tmp_path / "new" / "check.json").read_text())["is_equivariant"] is False
    assert not (runs / "plain" / "check.json").exists()


def test_angles_that_are_not_numbers_are_rejected(runs):
    result = run("check", runs / "plain", "--angles", "0,right")
    assert result.exit_code == 2 and "'0,right'" in result.stderr


def test_folder_without_a_run_is_rejected(tmp_path):
    result = run("check", tmp_path)
    assert result.exit_code == 2 and "is not a run folder" in result.stderr


class TestSegmentation:
    def test_dice_is_compared_with_a_control(self, image_run, tmp_path):
        arguments = ("--angles", "0,90", "--samples", 1, "--control", image_run, "--out", tmp_path)
        result = run("check", image_run, *arguments)
        assert result.exit_code == 0, result.output
        assert (
            "equivariant, rotations of the grid" in " ".join(result.output.split()) and "control truth" in result.output
        )
        found = json.loads((tmp_path / "check.json").read_text())
        assert found["is_equivariant"] and found["sweep"] == found["control"] and len(found["cases"]) == 1
        assert found["control_run"] == image_run.name
        at_0, at_90 = found["sweep"]["axes"]["plane"]
        assert at_0["agreement"] == 1.0 and at_90["agreement"] > 0.97
        assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")

    def test_failed_check_ends_with_code_1(self, image_run, tmp_path, monkeypatch):
        """Rounding errors exceed a tolerance of 0."""
        monkeypatch.setattr("steerformer.audit.verdict.TOLERANCE", 0.0)
        result = run("check", image_run, "--angles", "0", "--samples", 1, "--out", tmp_path)
        assert result.exit_code == 1 and "NOT equivariant" in result.output

    @pytest.mark.parametrize(
        ("which", "control", "words"),
        [
            ("image_run", "plain", "classifies"),
            ("image_run", "other", "has other test cases"),
            ("plain", "image_run", "a control is for segmentation models"),
            ("image_run", "nowhere", "is not a run folder"),
        ],
    )
    def test_control_that_does_not_fit_is_rejected(self, image_run, runs, tmp_path, which, control, words):
        places = {"image_run": image_run, "plain": runs / "plain", "nowhere": tmp_path, "other": tmp_path / "other"}
        if control == "other":
            shutil.copytree(image_run, tmp_path / "other")
            config = tmp_path / "other" / "config.yaml"
            values = yaml.safe_load(config.read_text())
            config.write_text(yaml.safe_dump(values | {"data": values["data"] | {"seed": 5}}))
        result = run("check", places[which], "--control", places[control])
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1, result.output
