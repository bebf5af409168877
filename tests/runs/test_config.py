"""Experiments from presets, files, run folders and overrides."""

import pytest
import yaml

from steerformer import models
from steerformer.config import ConfigError, validate, write_yaml
from steerformer.runs import TrainingConfig, load_experiment
from steerformer.runs.config import loss_terms
from steerformer.runs.config_keys import describe_keys
from training.tiny import experiment, values


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(values()))
    return path


@pytest.mark.parametrize("name", models.presets())
def test_every_preset_is_an_experiment(name):
    found = load_experiment(name)
    assert found.model.model_dump(mode="json").items() >= {"kind": models.preset(name)["model"]["kind"]}.items()


def test_overrides_change_single_values(file):
    found = load_experiment(file, ["training.epochs=7", "data.seed=5", "model.widths=[[3], [3], [5]]", "seed=8"])
    assert found.training.epochs == 7 and found.data.seed == 5 and found.seed == 8
    assert found.model.widths == ((3,), (3,), (5,))
    assert found.training.batch_size == load_experiment(file).training.batch_size


def test_written_config_is_read_back(tmp_path):
    (tmp_path / "again.yaml").write_text(write_yaml(experiment(precision="bf16", devices=2)))
    assert load_experiment(tmp_path / "again.yaml") == experiment(precision="bf16", devices=2)


def test_run_folder_is_an_experiment(tmp_path):
    (tmp_path / "config.yaml").write_text(write_yaml(experiment()))
    assert load_experiment(str(tmp_path)) == experiment()


@pytest.mark.parametrize("name", ["", ".", "images"])
def test_folder_without_a_run_is_rejected(tmp_path, monkeypatch, name):
    (tmp_path / "images").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is a folder without a run; name a preset, a YAML file or a run folder"):
        load_experiment(name)


def test_folder_does_not_hide_the_preset_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "rotmnist-transformer-k4-cpu").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_experiment("rotmnist-transformer-k4-cpu").model.depth == 1


def test_every_key_is_described():
    keys = {key.name: key for key in describe_keys()}
    assert (
        keys["training.batch_size"].default == "50"
        and "Samples per optimizer step" in keys["training.batch_size"].meaning
    )
    assert keys["model.group"].default == "required" and keys["training.ema"].default == "null"
    written = experiment().model_dump()
    assert {f"{part}.{key}" for part in ("model", "data", "training") for key in written[part]} <= keys.keys()


def test_every_key_has_a_plain_meaning():
    keys = list(describe_keys())
    assert len(keys) > 100
    assert [key.name for key in keys if not key.meaning] == []
    assert [key.name for key in keys if "``" in key.meaning] == []


def test_unknown_preset_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"no file 'rotmnist-transformer-k4'; did you mean 'rotmnist-transformer-k4-"):
        load_experiment("rotmnist-transformer-k4")


def test_unknown_key_gets_a_suggestion(file):
    with pytest.raises(ConfigError, match=r"training\.learning_rat.*learning_rate") as caught:
        load_experiment(file, ["training.learning_rat=1"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epochs=0", r"training\.epochs.*greater than or equal to 1"),
        ("training.optimizer=sgd", r"training\.optimizer.*'adamw' or 'adam'"),
        ("training.accumulate=3", r"batch_size 20 is not divisible by accumulate = 3"),
        ("training.precision=8", r"training\.precision"),
        ("seed=-1", r"seed.*greater than or equal to 0"),
        (f"seed={2**63}", r"seed.*less than"),
        ("training.learning_rate=1e38", r"training\.learning_rate.*less than or equal to 1000"),
        ("training.weight_decay=1e38", r"training\.weight_decay.*less than or equal to 1000"),
        ("training.learning_rate=.nan", r"training\.learning_rate.*finite number"),
        ("training.warmup=.inf", r"training\.warmup.*finite number"),
        ("training.clip=.inf", r"training\.clip.*finite number"),
        ("training.checkpoint_every=.nan", r"training\.checkpoint_every.*finite number"),
        (f"training.epochs={10**400}", r"training\.epochs"),
        ("training.threads=1000000000", r"training\.threads.*less than or equal to 4096"),
        ("training", r"expected key=value"),
    ],
)
def test_invalid_values_are_rejected(file, override, message):
    with pytest.raises(ConfigError, match=message):
        load_experiment(file, [override])


def test_precision_may_be_a_number():
    assert TrainingConfig.model_validate({"precision": 64}).precision == "64"


def test_losses_may_be_summed():
    assert TrainingConfig().loss == "cross_entropy"
    assert TrainingConfig(loss="dice + focal").loss == "dice+focal"


@pytest.mark.parametrize("wrong", ["entropy", "dice+dice", "", "dice+"])
def test_unknown_losses_are_rejected(wrong):
    with pytest.raises(ValueError, match="losses are cross_entropy, dice, focal and sums"):
        loss_terms(wrong)
    with pytest.raises(ConfigError, match=r"training.*loss.*losses are"):
        validate(TrainingConfig, {"loss": wrong}, where="training")


def test_patience_must_be_a_multiple_of_validate_every():
    with pytest.raises(
        ValueError, match=r"patience 4 ends between two validations; use a multiple of validate_every = 3"
    ):
        experiment(patience=4, validate_every=3)
