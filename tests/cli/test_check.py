"""``steerformer check``: it must tell an equivariant network from one that is not."""

import json
import shutil

import pytest
import yaml
from typer.testing import CliRunner

from cli.segmentation import without_distances
from steerformer.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_steerable_network_passes(runs):
    result = run("check", runs / "steerable", "--samples", 4, "--angles", "0,30,90")
    assert result.exit_code == 0, result.output
    assert "equivariant: rotations of the grid" in result.output and "NOT" not in result.output
    found = json.loads((runs / "steerable" / "check.json").read_text())
    assert found["is_equivariant"] and found["grid"]["worst"] < 1e-4 and found["samples"] == 4
    assert found["angles"] == [0, 30, 90] and len(found["accuracy"]["plane"]) == 3
    assert found["accuracy"]["plane"][0] == found["accuracy"]["plane"][2]
    assert {"flatten", "logits"} <= {layer["name"] for layer in found["layers_grid"]}
    assert (runs / "steerable" / "check.png").read_bytes().startswith(b"\x89PNG")


def test_a_plain_network_fails_and_is_told_so(runs, tmp_path):
    """The negative control."""
    result = run("check", runs / "plain", "--samples", 4, "--angles", "0,90", "--out", tmp_path / "new")
    assert result.exit_code == 1, result.output
    assert "NOT equivariant" in result.output
    assert json.loads((tmp_path / "new" / "check.json").read_text())["is_equivariant"] is False
    assert not (runs / "plain" / "check.json").exists()


def test_angles_that_are_no_numbers_are_shown(runs):
    result = run("check", runs / "plain", "--angles", "0,right")
    assert result.exit_code == 2 and "'0,right'" in result.stderr


def test_a_folder_without_a_run_is_named(tmp_path):
    result = run("check", tmp_path)
    assert result.exit_code == 2 and "is no run" in result.stderr


@pytest.fixture
def _no_distances():
    with without_distances():
        yield


@pytest.mark.usefixtures("_no_distances")
class TestSegmentations:
    def test_dice_against_angle_stands_beside_that_of_a_control(self, image_run, tmp_path):
        arguments = ("--angles", "0,90", "--samples", 1, "--control", image_run, "--out", tmp_path)
        result = run("check", image_run, *arguments)
        assert result.exit_code == 0, result.output
        assert "equivariant: rotations of the grid" in result.output and "control truth" in result.output
        found = json.loads((tmp_path / "check.json").read_text())
        assert found["is_equivariant"] and found["sweep"] == found["control"] and len(found["cases"]) == 1
        assert found["control_run"] == image_run.name
        straight, quarter = found["sweep"]["axes"]["plane"]
        assert straight["agreement"] == 1.0 and quarter["agreement"] > 0.97
        assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")

    def test_grid_rotations_that_fail_end_with_code_1(self, image_run, tmp_path, monkeypatch):
        """Rounding fails a tolerance of nothing."""
        monkeypatch.setattr("steerformer.audit.segmentation.TOLERANCE", 0.0)
        result = run("check", image_run, "--angles", "0", "--samples", 1, "--out", tmp_path)
        assert result.exit_code == 1 and "NOT equivariant" in result.output

    @pytest.mark.parametrize(
        ("which", "control", "words"),
        [
            ("image_run", "plain", "classifies"),
            ("image_run", "other", "has other test cases"),
            ("plain", "image_run", "--control is for models that segment"),
            ("image_run", "nowhere", "is no run"),
        ],
    )
    def test_a_control_that_does_not_fit_is_named(self, image_run, runs, tmp_path, which, control, words):
        places = {"image_run": image_run, "plain": runs / "plain", "nowhere": tmp_path, "other": tmp_path / "other"}
        if control == "other":
            shutil.copytree(image_run, tmp_path / "other")
            config = tmp_path / "other" / "config.yaml"
            values = yaml.safe_load(config.read_text())
            config.write_text(yaml.safe_dump(values | {"data": values["data"] | {"seed": 5}}))
        result = run("check", places[which], "--control", places[control])
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1, result.output
