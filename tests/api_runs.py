"""What the tests of the Python API share."""

import json

from typer.testing import CliRunner

from steerformer.cli import app


def command(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(values):
    """Values as a JSON file gives them back: tuples are lists, keys are strings."""
    return json.loads(json.dumps(values))


def images_of(run, count=2):
    """Some of the files that a run was trained on."""
    return sorted(run.config.data.root.rglob("*.png"))[:count]
