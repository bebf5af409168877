"""Runs that all commands share; they are trained once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import small_runs

Temporary = pytest.TempPathFactory


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: Temporary) -> Iterator[None]:
    """A cache folder of these tests, so that the user's cache is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def images(tmp_path_factory: Temporary) -> Path:
    """A folder with two classes of ten images each."""
    return small_runs.write_classes(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def runs(images: Path, tmp_path_factory: Temporary) -> Path:
    """A folder with two classifiers: ``steerable`` and, as the negative control, ``plain``."""
    folder = tmp_path_factory.mktemp("runs")
    for kind in small_runs.CLASSIFIERS:
        small_runs.train(folder / kind, small_runs.classifier_config(kind, images))
    return folder


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: Temporary) -> Path:
    """A folder with volumes and their labels of three classes."""
    return small_runs.write_volumes(tmp_path_factory.mktemp("volumes"))


@pytest.fixture(scope="session")
def volume_run(volumes: Path, tmp_path_factory: Temporary) -> Path:
    """A segmentation run on these volumes; without attention, so that its receptive field is small."""
    config = small_runs.segmentation_config(volumes, group="SO3", classes=3, model={"depth": 0})
    return small_runs.train(tmp_path_factory.mktemp("runs") / "volumes", config)


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: Temporary) -> Path:
    """A segmentation run on images, which are resampled first."""
    root = small_runs.write_disks(tmp_path_factory.mktemp("disks"))
    config = small_runs.segmentation_config(root, group="SO2", classes=2, size=[16, 18])
    return small_runs.train(tmp_path_factory.mktemp("runs") / "images", config)
