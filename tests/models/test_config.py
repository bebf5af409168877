"""Invalid configurations are rejected with one-line messages."""

import pytest

from steerformer import models
from steerformer.config import ConfigError, override, read_yaml, validate, write_yaml
from steerformer.models import ClassifierConfig, ModelConfig
from steerformer.runs import load_experiment

GOOD = {"kind": "classifier", "group": "SO2", "size": 12, "widths": [[2], [4]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernelsize": 3}, r"there is no key 'kernelsize' \(did you mean 'kernel_size'\?\)"),
        ({"xyzzy": 3}, r"there is no key 'xyzzy' \(known keys: group, .*size.*\)\.$"),
        ({"group": "SO4"}, r"'group': input should be 'SO2' or 'SO3', got 'SO4'"),
        ({"kind": "clasifier"}, r"'kind' is one of 'classifier', 'unet', 'cnn', 'monai', got 'clasifier'"),
        ({"size": "big"}, r"'size': .* got 'big'"),
        ({"kernel_size": [3, 3, 3]}, r"kernel_size has 3 numbers, expected 2 for 2 blocks of widths"),
        ({"kernel_size": 4}, r"kernel_size must be odd, got 4"),
        ({"pool": [2, 2]}, r"pool has 2 numbers, expected 1 for 2 blocks"),
        ({"pool": 20}, r"size 12 is too small for poolings by \(20,\): no voxel is left"),
        ({"final_pool": 7}, r"final_pool 7 is larger than the grid of 6 voxels after the last block"),
        ({"num_heads": 3}, r"num_heads 3 does not divide the last entry of widths, 4"),
        ({"features": [2, 2, 2, 2, 2]}, r"multiplicities \[2, 2, 2, 2, 2\] must be for at most 4 degrees"),
        ({"widths": []}, r"'widths': .* at least 1 item"),
        ({"widths": [[2], []]}, r"each block of widths needs at least 1 convolution, got \[\[2\], \[\]\]"),
        ({"dropout": 1.0}, r"'dropout': input should be less than 1, got 1.0"),
        ({"bias": float("nan")}, r"'bias': input should be a finite number"),
        ({"depth": -1}, r"'depth': .* got -1"),
        ({"radius": 0}, r"'radius': .* got 0"),
        ({"falloff": 1.0}, r"falloff 1 is larger than the radius None"),
        ({"radius": 2.0, "falloff": 2.5}, r"falloff 2.5 is larger than the radius 2.0"),
    ],
)
def test_invalid_classifier_configs_are_rejected(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        models.build({**GOOD, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 12}, r"there is no key 'size'"),
        ({"widths": [[2], [], [2]]}, r"each block of widths needs at least 1 convolution, got \[\[2\], \[\], \[2\]\]"),
        ({"widths": [[]]}, r"each block of widths needs at least 1 convolution"),
        ({"widths": [[2], [[1, 1, 1, 1, 1]]]}, r"multiplicities \[1, 1, 1, 1, 1\] must be for at most 4 degrees"),
        ({"widths": [[2], [6], []]}, r"num_heads 4 does not divide the last entry of widths, 6"),
        ({"pool": [2, 2]}, r"pool has 2 numbers, expected 1 for 2 blocks"),
        ({"classes": 1}, r"'classes': .* got 1"),
        ({"spacing": [1, 1, 3]}, r"spacing needs one number for each of 2 axes, got \[1.0, 1.0, 3.0\]"),
        ({"spacing": [1, 0]}, r"'spacing.1': .* got 0"),
        ({"head": "length"}, r"'head': input should be 'norm', 'absolute' or 'scalar', got 'length'"),
        ({"head_kernel_size": 2}, r"head_kernel_size must be odd, got 2"),
        ({"stem_stride": 3}, r"'stem_stride': input should be 1 or 2, got 3"),
        ({"stem_stride": 2}, "stem_stride 2 needs head: scalar, got norm"),
        ({"head_channels": 0}, r"'head_channels': .* got 0"),
    ],
)
def test_invalid_unet_configs_are_rejected(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        models.build({"kind": "unet", "group": "SO2", "widths": [[2], [4]], **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("epochs=3", r"no key 'epochs' \(did you mean 'training.epochs'\?\)"),
        ("training.epoch=3", r"no key 'training.epoch' \(did you mean 'epochs'\?\)"),
        ("training.lr=3", r"no key 'training.lr' \(known keys: epochs, batch_size, .*learning_rate"),
        ("model.epoch=3", r"no key 'model.epoch' \(known keys: group, "),
        ("data.size=32", r"no key 'data.size' \(did you mean 'model.size'\?\)"),
        ("model.kind=cnn", r"no key 'model.degrees' \(.*; and \d+ more\.$"),
        ("data.name=mnist", r"'data.name' is one of 'rotmnist', .* got 'mnist'"),
    ],
)
def test_misplaced_overrides_get_a_suggestion(word, message):
    with pytest.raises(ConfigError, match=message):
        load_experiment("rotmnist-transformer-k4-cpu", [word])


def test_missing_keys_are_named():
    with pytest.raises(ConfigError, match=r"^model: 'size' is missing\.$"):
        models.build({"kind": "classifier", "group": "SO2"})
    with pytest.raises(ConfigError, match=r"'kind' is missing"):
        models.build({"group": "SO2", "size": 12})


def test_yaml_round_trip(tmp_path):
    config = validate(ModelConfig, GOOD, where="here")
    (tmp_path / "model.yaml").write_text(write_yaml(config))
    assert validate(ClassifierConfig, read_yaml(tmp_path / "model.yaml"), where="there") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", r"bad.yaml, line \d+ is not valid YAML"),
        ("just words", r"should hold 'key: value' lines, got str"),
        ("!!python/object/apply:os.system [ls]", r"is not valid YAML"),
    ],
)
def test_invalid_yaml_is_rejected(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_yaml(tmp_path / "bad.yaml")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere.yaml: No such file"):
        read_yaml(tmp_path / "nowhere.yaml")


def test_overrides_do_not_modify_their_source():
    source = {"training": {"epochs": 9}, "seed": 1}
    changed = override(source, ["training.epochs=3", "training.clip=null", "model.widths=[[1], [2]]", "seed=5"])
    assert changed == {"training": {"epochs": 3, "clip": None}, "seed": 5, "model": {"widths": [[1], [2]]}}
    assert source == {"training": {"epochs": 9}, "seed": 1}


@pytest.mark.parametrize("word", ["epochs", "=3", "a..b=3", "seed.deep=3", "a=[1"])
def test_invalid_overrides_are_rejected(word):
    with pytest.raises(ConfigError, match=r"key=value|has no keys below|cannot read the value"):
        override({"seed": 1}, [word])
