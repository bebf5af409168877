"""Reading a run folder back: the model and the names of its classes."""

import json

import pytest

from steerformer import models
from steerformer.config import write_yaml
from steerformer.runs import read_run_folder
from training.tiny import assert_same_bits, experiment


@pytest.fixture
def folder(tmp_path):
    """A run folder, written without training."""
    config = experiment()
    models.save(models.build(config.model), tmp_path / "best.safetensors")
    (tmp_path / "config.yaml").write_text(write_yaml(config))
    (tmp_path / "metrics.json").write_text(json.dumps({"classes": [f"digit {number}" for number in range(10)]}))
    return tmp_path


def test_model_is_read_in_eval_mode(folder):
    found = read_run_folder(folder)
    assert found.folder == folder and found.config == experiment()
    assert not found.model.training
    assert_same_bits(dict(found.model.state_dict()), dict(models.load(folder / "best.safetensors").state_dict()))


def test_folder_may_be_a_string(folder):
    assert read_run_folder(str(folder)).folder == folder


def test_class_names_are_read_from_the_metrics(folder):
    assert read_run_folder(folder).classes == tuple(f"digit {number}" for number in range(10))


@pytest.mark.parametrize("metrics", ['{"history": []}', "[]", "{", '{"classes": ["one"]}', None])
def test_classes_without_names_are_numbered(folder, metrics):
    if metrics is None:
        (folder / "metrics.json").unlink()
    else:
        (folder / "metrics.json").write_text(metrics)
    assert read_run_folder(folder).classes == tuple("0123456789")


def test_folder_without_a_run_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run folder of 'steerformer train': it has no config\.yaml"):
        read_run_folder(tmp_path)


def test_run_without_a_model_is_rejected(folder):
    (folder / "best.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no best\.safetensors yet: its first epoch is not finished"):
        read_run_folder(folder)


def test_model_of_another_run_is_rejected(folder):
    other = experiment(model={"hidden": 9})
    models.save(models.build(other.model), folder / "best.safetensors")
    with pytest.raises(ValueError, match=r"best\.safetensors holds another model than config\.yaml describes"):
        read_run_folder(folder)
