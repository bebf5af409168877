"""A saved model comes back the same, and nothing else comes back at all."""

import errno
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
from steerformer.files import write_whole


@pytest.mark.parametrize("make", [classifier, plain, unet])
def test_there_and_back(group, make, tmp_path):
    model = make(group)
    model(model.in_type.randn(4, 8))  # running statistics that are not the first ones
    sf.save(model, tmp_path / "model.safetensors")
    back = sf.load(tmp_path / "model.safetensors")
    x = model.in_type.randn(2, 8)
    assert type(back) is type(model) and back.config == model.config and not back.training
    assert_close(back(x), model.eval()(x), rtol=0, atol=0)


def test_double_precision_stays(tmp_path):
    model = classifier(SO2).double()
    sf.save(model, tmp_path / "model.safetensors")
    assert next(sf.load(tmp_path / "model.safetensors").parameters()).dtype == torch.float64


def test_a_model_without_a_configuration_is_refused(tmp_path, unchecked):
    with pytest.raises(TypeError, match=r"save takes a model made by models.build, got a Linear"):
        sf.save(nn.Linear(2, 2), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_file_cut_in_half_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    sf.save(classifier(SO2), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"model.safetensors is no whole safetensors file, perhaps cut short"):
        sf.load(path)


def test_a_pickle_is_not_executed(tmp_path):
    path, trace = tmp_path / "model.safetensors", tmp_path / "trace"
    path.write_bytes(pickle.dumps(_Evil(str(trace))))
    with pytest.raises(ValueError, match=r"no whole safetensors file"):
        sf.load(path)
    assert not trace.exists()


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=r"there is no file .*model.safetensors"):
        sf.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"not one written by steerformer"):
        sf.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 7}, r"another architecture, \d+ do not fit: .* has shape \(.*\), expected \(.*\)"),
        ({"depth": 2}, r"encoder.blocks.1.* is missing"),
        ({"depth": 0}, r"encoder.blocks.0.* is unknown"),
        ({"future": 1}, r"a model that this version does not know: model: there is no key 'future'"),
    ],
)
def test_another_architecture_is_refused(tmp_path, change, message):
    path = tmp_path / "model.safetensors"
    model = classifier(SO2)
    sf.save(model, path)
    config = {**model.config.model_dump(mode="json"), **change}
    save_file(load_file(path), path, metadata={"steerformer.model": json.dumps(config)})
    with pytest.raises(ValueError, match=message):
        sf.load(path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_can_be_read_as_others_can(tmp_path):
    plain_file = tmp_path / "plain"
    plain_file.write_text("x")
    write_whole(tmp_path / "whole", "x")
    assert (tmp_path / "whole").stat().st_mode == plain_file.stat().st_mode
