"""Keys of earlier versions are rejected with one line that names the new key."""

import re

import pytest
import yaml

from steerformer import models
from steerformer.config import _RENAMED, ConfigError, override, validate
from steerformer.models.config import ModelConfig
from steerformer.runs import ExperimentConfig, load_experiment

CLASSIFICATION, SEGMENTATION = "rotmnist-transformer-k4-cpu", "hippocampus-transformer-l2-cpu"
KEYS = [
    (SEGMENTATION, "data.normalise=nonzero", "normalize"),
    ("folder", "data.scale=deviation", "normalize (none or std)"),
    (SEGMENTATION, "data.patch=[8, 8, 8]", "patch_size"),
    (SEGMENTATION, "data.outside=ignore", "padding_label"),
    (CLASSIFICATION, "data.rotate_train=true", "train_rotation (none or any)"),
    (CLASSIFICATION, "data.rotate_test=false", "test_rotation (none or any)"),
    (CLASSIFICATION, "model.profiles=fitted", "kernel_family"),
    (SEGMENTATION, "model.profiles=fitted", "kernel_family"),
    (CLASSIFICATION, "model.norms=block", "norm_after"),
    (SEGMENTATION, "model.norms=block", "norm_after"),
    (SEGMENTATION, "model.head_size=3", "head_kernel_size"),
    (SEGMENTATION, "model.checkpoint=true", "activation_checkpointing"),
    (CLASSIFICATION, "model.tolerance=0.1", "max_impurity"),
    (SEGMENTATION, "model.tolerance=0.01", "max_impurity"),
]
renamed = pytest.mark.parametrize("base, word, new", KEYS, ids=lambda value: str(value).split("=")[0])


def experiment(base, *words):
    """The values of a preset, with an old key."""
    if base == "folder":
        return override(models.preset(CLASSIFICATION) | {"data": {"name": "folder"}}, words)
    return override(models.preset(base), words)


def message(word, new):
    return re.escape(f"there is no key '{word.split('=')[0]}' (it is now called {new}).")


def test_every_renamed_key_is_tested():
    tested = {(word.split("=")[0].split(".")[1], new) for _, word, new in KEYS}
    assert tested == set(_RENAMED.items())


@pytest.mark.parametrize("base", [CLASSIFICATION, SEGMENTATION, "folder"])
def test_experiments_are_valid_without_old_keys(base):
    """A control: nothing but the old key is wrong in the other tests."""
    assert validate(ExperimentConfig, experiment(base), where="experiment")


@renamed
def test_old_key_in_a_mapping_is_rejected(base, word, new):
    with pytest.raises(ConfigError, match=f"^experiment: {message(word, new)}$"):
        validate(ExperimentConfig, experiment(base, word), where="experiment")


@renamed
@pytest.mark.parametrize("is_run", [False, True], ids=["file", "run"])
def test_old_key_in_a_yaml_file_is_rejected(tmp_path, base, word, new, is_run):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(experiment(base, word)))
    source = tmp_path if is_run else path
    with pytest.raises(ConfigError, match=f"^{re.escape(str(source))}: {message(word, new)}$"):
        load_experiment(source)


def test_old_key_in_an_override_is_rejected():
    with pytest.raises(ConfigError, match=message("data.patch", "patch_size")):
        load_experiment(SEGMENTATION, ["data.patch=[8, 8, 8]"])


def test_old_key_in_a_model_mapping_is_rejected():
    with pytest.raises(ConfigError, match=message("profiles", "kernel_family")):
        validate(ModelConfig, models.preset(CLASSIFICATION)["model"] | {"profiles": "fitted"}, where="model")


def test_run_with_many_old_keys_gets_one_line(tmp_path):
    words = [word for base, word, _ in KEYS if base == SEGMENTATION]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(experiment(SEGMENTATION, *words)))
    with pytest.raises(ConfigError) as caught:
        load_experiment(tmp_path)
    assert "\n" not in str(caught.value) and "more" not in str(caught.value)
    assert str(caught.value).count("it is now called") == len(words) > 3


@pytest.mark.parametrize("word", ["data.patch=8", "model.checkpoint=true", "training.norms=block"])
def test_old_key_in_another_place_is_just_unknown(word):
    """The new key would be unknown there, too."""
    with pytest.raises(ConfigError, match=rf"there is no key '{word.split('=')[0]}'") as caught:
        validate(ExperimentConfig, experiment(CLASSIFICATION, word), where="experiment")
    assert "is now called" not in str(caught.value)
