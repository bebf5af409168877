"""``steerformer check``: it must tell an equivariant network from one that is not."""

import json

from typer.testing import CliRunner

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
