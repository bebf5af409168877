"""The command as a user types it."""

import pytest
from typer.testing import CliRunner

import steerformer
from steerformer.cli import app


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_the_version_is_the_packages():
    assert run("--version").output.strip() == f"steerformer {steerformer.__version__}"


@pytest.mark.parametrize("command", [(), ("demo",), ("evaluate",), ("check",), ("predict",), ("reproduce",)])
def test_help_tells_what_to_type(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_an_unknown_experiment_ends_with_one_line_and_code_2():
    result = run("reproduce", "[bold]tables")
    assert result.exit_code == 2
    known = "kernels, layers, attention, profiles, results"
    assert result.stderr == f"steerformer: there is no experiment '[bold]tables'; known: {known}.\n"


def test_profiles_say_what_data_they_need(tmp_path):
    result = run("reproduce", "profiles", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "--data" in result.stderr


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("reproduce", "kernels", "--out", str(tmp_path / "file" / "docs"))
    assert result.exit_code == 2
    assert "cannot read or write" in result.stderr and "file" in result.stderr


def test_missing_digits_are_named(tmp_path):
    result = run("reproduce", "profiles", "--out", str(tmp_path), "--data", str(tmp_path / "mnist.npz"))
    assert result.exit_code == 2
    assert "mnist.npz" in result.stderr
