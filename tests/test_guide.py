"""The YAML, Python and commands of docs/guide.md are valid."""

import re
import shlex
from pathlib import Path

import pytest
import torch
import typer.main
import yaml
from PIL import Image

import steerformer as sf
from steerformer import models
from steerformer.cli import app
from steerformer.config import validate
from steerformer.runs import ExperimentConfig

GUIDE = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()
CNN = {"kind": "cnn", "group": "SO2", "size": 8, "widths": [[2], [2]]}
TINY = ["training.epochs=1", "training.batch_size=20", "data.train=60", "data.validation=20", "data.test=60"]
COMMANDS = [
    line.split("#")[0].split(">")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("steerformer")
]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize(("number", "classes"), [(0, 2), (1, 3)])
def test_experiments_are_valid_and_their_models_build(number, classes):
    experiment = validate(ExperimentConfig, yaml.safe_load(blocks("yaml")[number]), where="guide")
    assert models.build(experiment.model).out_type.channels == classes
    assert len(blocks("yaml")) == 2


@pytest.fixture
def tiny_training(monkeypatch, tmp_path):
    """``sf.train`` checks its arguments, then trains a tiny network on a few digits instead."""
    train = sf.train

    def train_tiny(config, overrides, *, out):
        sf.api.resolve_config(config, overrides)
        return train("demo-cnn", TINY, out=out)

    monkeypatch.setattr(sf, "train", train_tiny)
    monkeypatch.setenv("STEERFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Image.new("L", (28, 28), 128).save("digit.png")


@pytest.mark.slow
def test_python_runs(tiny_training, tmp_path, capsys):
    scope = {}
    first, second, *_ = blocks("python")
    exec(first, scope)
    label, accuracy, grade = capsys.readouterr().out.split()
    assert label in scope["run"].classes and 0 <= float(accuracy) <= 1
    assert grade == "fail"  # a plain CNN
    assert scope["run"].folder.resolve() == tmp_path / "runs" / "digits"
    exec(second, scope)
    assert "encoder.blocks.0.attention" in capsys.readouterr().out
    assert (tmp_path / "model.safetensors").exists()


def test_figures_are_written(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[2], {"sf": sf})
    assert {file.stem for file in tmp_path.glob("*.png")} == {"kernels", "features", "attention", "equivariance"}
    assert capsys.readouterr().out.startswith("{0: ")


@pytest.mark.slow
def test_networks_are_exported(monkeypatch, tmp_path, capsys, unchecked):
    monkeypatch.chdir(tmp_path)
    features = sf.FieldType(sf.SO2, "4x0+4x1+2x2")
    scope = {"sf": sf, "torch": torch, "features": features, "model": models.build(CNN).eval()}
    scope["conv"] = sf.nn.Conv(sf.FieldType.image(sf.SO2, 1), features, kernel_size=5)
    exec(blocks("python")[3], scope)
    assert float(capsys.readouterr().out) < 1e-5
    assert {file.name for file in tmp_path.iterdir()} == {"model.pt", "net.pt"}


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_exist(line):
    _, name, *words = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    presets = [word for word in words if word.endswith("-cpu")]
    assert set(presets) <= set(models.presets())
