"""What the guide says, tried."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from steerformer import models
from steerformer.cli import app
from steerformer.config import validate
from steerformer.train import ExperimentConfig

GUIDE = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()
COMMANDS = [
    line.split("#")[0].split(">")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("steerformer")
]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize(("number", "classes"), [(0, 2), (1, 3)])
def test_the_experiments_are_valid_and_their_models_build(number, classes):
    experiment = validate(ExperimentConfig, yaml.safe_load(blocks("yaml")[number]), where="guide")
    assert models.build(experiment.model).out_type.channels == classes
    assert len(blocks("yaml")) == 2


def test_the_python_runs(tmp_path, monkeypatch, capsys):
    (text,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(text, {})
    assert "encoder.blocks.0.attention" in capsys.readouterr().out
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_and_their_options_exist(line):
    _, name, *words = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    presets = [word for word in words if word.endswith("-cpu")]
    assert set(presets) <= set(models.presets())
