"""Runs that segment: what they leave behind, and that they can be broken and resumed."""

import csv
import json
import re
import subprocess
import sys

import pytest
import torch
import yaml

from steerformer import data
from steerformer.config import ConfigError
from steerformer.data.base import ignore
from steerformer.data.sources import Labeled, Source, load_sources
from steerformer.train import Reporter, open_run, run
from steerformer.train.cases import report
from steerformer.train.segmentation import judge_cases
from steerformer.train.tasks import voxel_note
from train import tiny
from train.spots import STEPS, experiment, values, write_spots
from train.tiny import assert_same_run

pytest.importorskip("monai", reason="HD95 is MONAI's, which comes with the extra medical")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_spots(tmp_path_factory.mktemp("spots"))


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    """A run that nothing disturbs."""
    return run(experiment(root), tmp_path_factory.mktemp("runs") / "whole")


def figures(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_the_figures_are_those_of_the_model_that_is_kept(folder):
    opened, found = open_run(folder), figures(folder)
    splits = data.load(opened.config.data)
    results = judge_cases(opened.model, splits.test, range(2), classes=splits.classes)
    expected = report(results)
    assert found["test_dice"] == pytest.approx(expected["dice"])
    assert found["test_hd95"] == pytest.approx(expected["hd95"])
    assert found["test_cases"] == 2 and found["classes"] == ["background", "spot"]
    assert found["test_structures"]["spot"]["dice"] == pytest.approx(expected["structures"]["spot"]["dice"])
    best = found["history"][found["best_epoch"] - 1]
    kept = judge_cases(opened.model, splits.validation, range(2), classes=splits.classes, distances=False)
    assert best["validation_dice"] == pytest.approx(report(kept)["dice"])
    assert best["validation_dice"] == max(row["validation_dice"] for row in found["history"])


def test_tables_have_a_row_for_each_epoch_and_for_each_case(folder):
    epochs = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    cases = list(csv.DictReader((folder / "cases-test.csv").read_text().splitlines()))
    assert [float(row["train_dice"]) for row in epochs] == [row["train_dice"] for row in figures(folder)["history"]]
    splits = data.load(open_run(folder).config.data)
    assert [row["case"] for row in cases] == list(splits.test.names)
    mean = sum(float(row["spot dice"]) for row in cases) / 2
    assert figures(folder)["test_dice"] == pytest.approx(mean, rel=1e-5)


class PowerCutError(Exception):
    pass


class Breaking(Reporter):
    def __init__(self, at):
        self.at, self.steps = at, 0

    def step(self, **_):
        self.steps += 1
        if self.steps == self.at:
            raise PowerCutError


@pytest.mark.parametrize("step", [2, STEPS + 1])
def test_broken_after_any_step_it_goes_on_with_the_same_bits(root, folder, tmp_path, step):
    with pytest.raises(PowerCutError):
        run(experiment(root), tmp_path / "run", reporter=Breaking(step))
    run(experiment(root), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", folder)
    assert (tmp_path / "run" / "cases-test.csv").read_text() == (folder / "cases-test.csv").read_text()


@pytest.mark.slow
def test_it_learns(root, tmp_path):
    found = figures(run(experiment(root, epochs=12, data={"train_rotation": "none"}), tmp_path / "run"))
    assert found["test_dice"] > 0.8


@pytest.mark.slow
def test_two_processes_have_the_figures_of_one(root, tmp_path):
    """Each takes every other case, also of an odd number of them."""
    changes = {
        **{"model": {"attention_dropout": 0.0, "norm": "layer"}, "data": {"train_rotation": "none", "test": 0.3}},
        **{"precision": "64", "ema": None, "epochs": 1},
    }
    alone = figures(run(experiment(root, **changes), tmp_path / "alone"))
    (tmp_path / "spots.yaml").write_text(yaml.safe_dump(values(root, **changes)))
    command = [sys.executable, "-m", "steerformer", "train", "spots.yaml", "--out", "both", "training.devices=2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    both = figures(tmp_path / "both")
    for key in ("train_loss", "train_dice", "validation_loss", "validation_dice"):
        assert both["history"][0][key] == pytest.approx(alone["history"][0][key], rel=1e-5), key
    assert both["test_cases"] == 3 and both["test_dice"] == pytest.approx(alone["test_dice"], rel=1e-5)
    assert (tmp_path / "both" / "cases-test.csv").read_text() == (tmp_path / "alone" / "cases-test.csv").read_text()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": {"classes": 3}}, r"model\.classes is 3, but the data have 2 classes"),
        ({"model": {"in_channels": 3}}, r"shape \(3, any, any\), but the data have \(1, 12, 12\)"),
        ({"model": {"group": "SO3"}}, r"shape \(1, any, any, any\), but the data have \(1, 12, 12\)"),
        ({"model": tiny.MODEL}, r"model\.kind=classifier labels whole samples, but data\.name=pairs has a label"),
    ],
)
def test_model_and_data_have_to_fit(root, tmp_path, changes, complaint):
    if "kind" in changes.get("model", {}):
        config = type(experiment(root)).model_validate(values(root) | changes)
    else:
        config = experiment(root, **changes)
    with pytest.raises(ConfigError, match=complaint):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def splits_of(tmp_path, spacings, **settings):
    sources = []
    for number, spacing in enumerate(spacings):
        (tmp_path / str(number)).touch()
        case = Labeled(torch.rand(1, 6, 6, 6), torch.zeros(6, 6, 6, dtype=torch.uint8), spacing)
        sources.append(Source(str(number), (tmp_path / str(number),), lambda case=case: case))
    config = data.CasesConfig(validation=0, test=0, **settings)
    return load_sources(sources, ("background", "spot"), config, ignore, where="here")


@pytest.mark.parametrize(
    ("spacings", "spacing", "settings", "advice"),
    [
        ([(1.0, 1.0, 3.0)] * 2 + [(1.0, 1.0, 1.0)], None, {}, r"set model.spacing=\[1,1,3\] or data.spacing=1\."),
        ([(1.0, 1.0, 1.0)], (1.0, 1.0, 3.0), {}, r"set model.spacing=\[1,1,1\] or data.spacing=1\."),
        ([(1.0, 1.0, 1.0)], None, {"size": (6, 6, 2)}, r"\[1,1,3\] or data.spacing=1 and data.size=null\."),
        ([(2.0, 2.0, 6.0)], (1.0, 1.0, 3.0), {}, None),
        ([(1.0, 1.0, 3.0)], None, {"spacing": 1.0}, None),
        ([(1.0, 1.0, 1.05)], None, {}, None),
    ],
)
def test_voxels_of_other_proportions_than_the_model_takes_are_told(root, tmp_path, spacings, spacing, settings, advice):
    config = experiment(root, model={"group": "SO3", "spacing": spacing})
    note = voxel_note(splits_of(tmp_path, spacings, **settings), config)
    assert (note is None) == (advice is None)
    if advice:
        says = " x ".join(f"{size:g}" for size in spacing or (1, 1, 1))
        assert f" mm, but model.spacing says {says}: rotations are then not those of space; set" in note
        assert re.search(advice, note)


class Heard(Breaking):
    def __init__(self):
        super().__init__(at=1)
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def test_a_run_says_it_of_its_pixels(root, tmp_path):
    reporter = Heard()
    with pytest.raises(PowerCutError):
        run(experiment(root, data={"size": [12, 32]}), tmp_path / "run", reporter=reporter)
    (line,) = (line for line in reporter.lines if "rotations" in line)
    assert re.match(r"voxels are 1\.\d+ x 0\.5, but model.spacing says 1 x 1: ", line)  # heights differ


def test_data_with_one_label_a_sample_cannot_teach_a_segmentation(root, tmp_path):
    mixed = tiny.values() | {"model": values(root)["model"]}
    with pytest.raises(ConfigError, match=r"kind=unet labels voxels, but data\.name=rotmnist has one label"):
        run(type(experiment(root)).model_validate(mixed), tmp_path / "run")


def test_dice_is_no_loss_for_classifiers(tmp_path):
    with pytest.raises(ConfigError, match=r"training\.loss=dice is for segmentation; take cross_entropy or focal"):
        run(tiny.experiment(loss="dice"), tmp_path / "run")
