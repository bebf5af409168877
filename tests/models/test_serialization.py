"""Saved models load unchanged; other files are rejected."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from models.small import classifier, plain, unet
from steerformer import SO2


@pytest.mark.parametrize("make", [classifier, plain, unet])
def test_save_and_load(group, make, tmp_path):
    model = make(group)
    model(model.in_type.randn(4, 8))  # updates the running statistics
    sf.save(model, tmp_path / "model.safetensors")
    back = sf.load(tmp_path / "model.safetensors")
    x = model.in_type.randn(2, 8)
    assert type(back) is type(model) and back.config == model.config and not back.training
    assert_close(back(x), model.eval()(x), rtol=0, atol=0)


def test_dtype_is_preserved(tmp_path):
    model = classifier(SO2).double()
    sf.save(model, tmp_path / "model.safetensors")
    assert next(sf.load(tmp_path / "model.safetensors").parameters()).dtype == torch.float64


def test_models_without_config_are_rejected(tmp_path, unchecked):
    with pytest.raises(TypeError, match=r"save takes a model made by models.build, got Linear"):
        sf.save(nn.Linear(2, 2), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_truncated_files_are_rejected(tmp_path):
    path = tmp_path / "model.safetensors"
    sf.save(classifier(SO2), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"model.safetensors is not a complete safetensors file; it may be truncated"):
        sf.load(path)


def test_a_pickle_is_not_executed(tmp_path):
    path, trace = tmp_path / "model.safetensors", tmp_path / "trace"
    path.write_bytes(pickle.dumps(_Evil(str(trace))))
    with pytest.raises(ValueError, match=r"not a complete safetensors file"):
        sf.load(path)
    assert not trace.exists()


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_other_files_are_rejected(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=r"there is no file .*model.safetensors"):
        sf.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"not one written by steerformer"):
        sf.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 7}, r"another architecture, \d+ do not match: .* has shape \(.*\), expected \(.*\)"),
        ({"depth": 2}, r"encoder.blocks.1.* is missing"),
        ({"depth": 0}, r"encoder.blocks.0.* is unknown"),
        ({"future": 1}, r"saved by another version of steerformer: model: there is no key 'future'"),
    ],
)
def test_other_architectures_are_rejected(tmp_path, change, message):
    path = tmp_path / "model.safetensors"
    model = classifier(SO2)
    sf.save(model, path)
    config = {**model.config.model_dump(mode="json"), **change}
    save_file(load_file(path), path, metadata={"steerformer.model": json.dumps(config)})
    with pytest.raises(ValueError, match=message):
        sf.load(path)
