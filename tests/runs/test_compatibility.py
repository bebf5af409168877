"""Experiments whose model, data and training do not fit together."""

import re
from pathlib import Path

import pytest
import torch

from steerformer import data
from steerformer.config import ConfigError
from steerformer.data.cases import CaseFiles, load_cases
from steerformer.data.dataset import no_progress
from steerformer.io.scans import Scan
from steerformer.runs import ExperimentConfig
from steerformer.runs.compatibility import spacing_warning
from steerformer.training import train_run
from training import spots, tiny


@pytest.fixture(autouse=True, scope="module")
def digits(tmp_path_factory):
    with tiny.synthetic_digits(tmp_path_factory.mktemp("digits")):
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a segmentation data set."""
    return spots.write_spots(tmp_path_factory.mktemp("spots"))


def assert_rejected(values, folder, message):
    """Training is refused before anything is written."""
    with pytest.raises(ConfigError, match=message):
        train_run(ExperimentConfig.model_validate(values), folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"classes": 7}}, r"model\.classes is 7, but the data have 10 classes; set model\.classes=10"),
        (
            {"model": {"size": 32}},
            r"shape \(1, 32, 32\), but the data have \(1, 28, 28\).*; set model\.in_channels and model\.size\.",
        ),
        ({"model": {"in_channels": 3}}, r"shape \(3, 28, 28\), but the data have \(1, 28, 28\)"),
        ({"data": {"validation": 0}, "patience": 2}, r"patience needs validation samples"),
        ({"loss": "dice"}, r"training\.loss=dice is for segmentation; use cross_entropy or focal"),
    ],
)
def test_classification_with_other_data_is_rejected(tmp_path, changes, message):
    assert_rejected(tiny.values(**changes), tmp_path / "run", message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"classes": 3}}, r"model\.classes is 3, but the data have 2 classes; set model\.classes=2"),
        ({"model": {"in_channels": 3}}, r"shape \(3, any, any\), but the data have \(1, 12, 12\)"),
        (
            {"model": {"group": "SO3"}},
            r"shape \(1, any, any, any\), but the data have \(1, 12, 12\).*; set model\.in_channels and model\.group\.",
        ),
    ],
)
def test_segmentation_with_other_data_is_rejected(root, tmp_path, changes, message):
    assert_rejected(spots.values(root, **changes), tmp_path / "run", message)


def test_classifier_cannot_be_trained_on_voxel_labels(root, tmp_path):
    values = spots.values(root) | {"model": tiny.MODEL}
    message = r"model\.kind=classifier labels whole samples, but data\.name=pairs has a label for each voxel"
    assert_rejected(values, tmp_path / "run", message)


def test_segmentation_cannot_be_trained_on_sample_labels(root, tmp_path):
    values = tiny.values() | {"model": spots.MODEL}
    message = r"kind=unet labels voxels, but data\.name=rotmnist has one label per sample"
    assert_rejected(values, tmp_path / "run", message)


def make_splits(tmp_path, spacings, **settings):
    """One training case per voxel spacing."""
    cases = []
    for number, spacing in enumerate(spacings):
        (tmp_path / str(number)).touch()
        labels = torch.zeros(6, 6, 6, dtype=torch.uint8)
        scan = Scan(torch.rand(1, 6, 6, 6), spacing, Path(str(number)), "volume", labels=labels)
        cases.append(CaseFiles(str(number), (tmp_path / str(number),), lambda scan=scan: scan))
    config = data.SegmentationDataConfig(validation=0, test=0, **settings)
    return load_cases(cases, ("background", "spot"), config, no_progress, where="here")


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
def test_other_voxel_proportions_give_a_warning(tmp_path, spacings, spacing, settings, advice):
    experiment = spots.experiment("unused", model={"group": "SO3", "spacing": spacing})
    warning = spacing_warning(make_splits(tmp_path, spacings, **settings), experiment)
    assert (warning is None) == (advice is None)
    if advice:
        assumed = " x ".join(f"{size:g}" for size in spacing or (1, 1, 1))
        expected = f" mm, but model.spacing says {assumed}, so the network is not equivariant in physical space; set"
        assert expected in warning
        assert re.search(advice, warning)
