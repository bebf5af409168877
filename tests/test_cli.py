"""The command ``steerformer`` as a whole."""

import pytest
from typer.testing import CliRunner

import steerformer
from steerformer.cli import app


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_version_is_that_of_the_package():
    assert run("--version").output.strip() == f"steerformer {steerformer.__version__}"


COMMANDS = ("demo", "evaluate", "check", "predict", "export", "reproduce")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_shows_the_usage(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_unknown_page_ends_with_one_line_and_code_2():
    result = run("reproduce", "[bold]tables")
    assert result.exit_code == 2
    assert result.stderr == "steerformer: cannot reproduce '[bold]tables'; known: results, efficiency.\n"


def test_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("reproduce", "results", "--out", str(tmp_path / "file" / "docs"))
    assert result.exit_code == 2
    assert "cannot read or write" in result.stderr and "file" in result.stderr


def test_missing_results_are_named(tmp_path):
    result = run("reproduce", "results", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "results.json" in result.stderr and result.stderr.count("\n") == 1
