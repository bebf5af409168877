"""Two small runs on pictures of our own: a steerable network, and a plain one as the negative control."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.segmentation import run_on, write_images, write_volumes
from steerformer import train
from steerformer.config import validate
from steerformer.train import ExperimentConfig

SIZE = 12
MODELS = {
    "steerable": {"kind": "classifier", "degrees": 2, "widths": [[2], [4]], "num_heads": 2, "features": 8, "hidden": 8},
    "plain": {"kind": "cnn", "widths": [[4], [4]], "kernel_size": 3, "hidden": 8},
}


def draw(path: Path, kind: str, seed: int) -> None:
    """A bar or a spot on a dark ground, a little noisy."""
    generator = np.random.default_rng(seed)
    image = generator.integers(0, 40, (SIZE, SIZE), dtype=np.uint8)
    image[(slice(5, 7), slice(1, 11)) if kind == "bar" else (slice(4, 8), slice(4, 8))] = 230
    Image.fromarray(image).save(path)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two classes of ten pictures each."""
    root = tmp_path_factory.mktemp("pictures")
    for kind in ("bar", "spot"):
        (root / kind).mkdir()
        for i in range(10):
            draw(root / kind / f"{i}.png", kind, i)
    return root


@pytest.fixture(scope="session")
def runs(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two runs; their cache is a temporary one."""
    folder = tmp_path_factory.mktemp("runs")
    os.environ["STEERFORMER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    for name, model in MODELS.items():
        values = {
            "model": {"group": "SO2", "size": SIZE, "classes": 2, **model},
            "data": {"name": "folder", "root": pictures, "size": SIZE, "validation": 0.3, "test": 0.3},
            "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "threads": 1},
        }
        train.run(validate(ExperimentConfig, values, where=name), folder / name)
    return folder


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with volumes and their labels, of three classes."""
    return write_volumes(tmp_path_factory.mktemp("volumes"))


@pytest.fixture(scope="session")
def volume_run(volumes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that segments them, without attention: what it says of a voxel depends on its surroundings alone."""
    os.environ["STEERFORMER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return run_on(tmp_path_factory.mktemp("runs") / "volumes", volumes, group="SO3", classes=3, model={"depth": 0})


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that segments images, which are resampled before."""
    os.environ["STEERFORMER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    root = write_images(tmp_path_factory.mktemp("discs"))
    return run_on(tmp_path_factory.mktemp("runs") / "images", root, group="SO2", classes=2, size=[16, 18])
