"""A tiny classification experiment with convolutions, batch norm, dropout, EMA and validation."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from steerformer.runs import ExperimentConfig
from steerformer.training.checkpointing import load_checkpoint

MODEL = {
    "kind": "classifier",
    "group": "SO2",
    "size": 28,
    "degrees": 2,
    "widths": [[2], [2], [2]],
    "kernel_size": 3,
    "depth": 0,
    "features": 4,
    "hidden": 8,
    "dropout": 0.3,
}
DATA = {"name": "rotmnist", "train": 90, "validation": 30, "test": 40}
TRAINING = {"epochs": 3, "batch_size": 20, "ema": 0.9, "clip": 1.0, "learning_rate": 0.02}
STEPS = 3  # per epoch: 60 training samples in batches of 20


def write_digits(path):
    """Ten noise patterns, each with a little more noise: learned within a few steps."""
    random = np.random.default_rng(0)
    labels = np.arange(140, dtype=np.uint8) % 10
    images = random.integers(0, 200, (10, 28, 28))[labels] + random.integers(0, 55, (140, 28, 28))
    parts = {"train": slice(0, 100), "test": slice(100, 140)}
    images = {f"{part}_images": images[chosen].astype(np.uint8) for part, chosen in parts.items()}
    np.savez(path, **images, **{f"{part}_labels": labels[chosen] for part, chosen in parts.items()})
    return path


@contextmanager
def synthetic_digits(folder):
    """Make experiments read synthetic digits from ``folder``, and cache them there."""
    with digits_cache(folder), pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATA, "root", str(write_digits(folder / "digits.npz")))
        yield


@contextmanager
def digits_cache(folder):
    """Cache data in ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(folder / "cache"))
        yield


def values(*, model=None, data=None, **training):
    """The experiment as in a YAML file."""
    return {"model": MODEL | (model or {}), "data": DATA | (data or {}), "training": TRAINING | training, "seed": 3}


def experiment(**changes):
    return ExperimentConfig.model_validate(values(**changes))


def read_metrics(folder):
    return json.loads((folder / "metrics.json").read_text())


def files_in(folder):
    """The content of every file of a run folder, except subfolders."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_same_bits(one, other):
    """Two nested values are exactly equal."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_bits(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_bits(a, b)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


def without_seconds(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def assert_same_run(one, other):
    """Two run folders have bit-identical weights, random states, optimizer states and metrics."""
    a, b = (load_checkpoint(folder / "last.ckpt") for folder in (one, other))
    assert_same_bits(a["learner"], b["learner"])
    for states in (*a["random"], *b["random"]):
        del states["python"]  # beartype draws from it
    assert_same_bits(a["random"], b["random"])
    for state in (a["state"], b["state"]):
        state["history"] = without_seconds(state["history"])
        state["best"] = without_seconds([state["best"]])
        del state["seconds"]
    assert_same_bits(a["state"], b["state"])
    assert (one / "best.safetensors").read_bytes() == (other / "best.safetensors").read_bytes()
    tables = [(folder / "metrics.csv").read_text().splitlines() for folder in (one, other)]
    assert [line.rpartition(",")[0] for line in tables[0]] == [line.rpartition(",")[0] for line in tables[1]]
