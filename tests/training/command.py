"""Running ``steerformer train`` within a test."""

from typer.testing import CliRunner

from steerformer.cli import app


def train(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def error_line(*arguments):
    """The one line on standard error of a command that fails as it should."""
    result = train(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("steerformer: ")
    return result.stderr
