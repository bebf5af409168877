"""Data efficiency: steerable networks and plain ones, trained for equally many minutes on few and many samples."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from steerformer import data, models
from steerformer.api import open_run, resolve_config, train
from steerformer.io.atomic import write_json
from steerformer.metrics.statistics import binomial_error
from steerformer.reproduce.demo import is_finished
from steerformer.runs import ExperimentConfig
from steerformer.training import Reporter
from steerformer.training.distributed import make_fabric
from steerformer.training.learner import Learner
from steerformer.training.tasks import make_task

TESTS = {"upright": "none", "rotated": "any"}
MOST_EPOCHS = 1000
"""Runs on few samples end here, however many minutes are left."""
_WARM_UP, _TIMED = 2, 8


@dataclass(frozen=True)
class Study:
    """One data set: numbers of training samples, and a preset with overrides for each network."""

    title: str
    sizes: tuple[int, ...]
    score: str
    networks: dict[str, tuple[str, ...]]
    overrides: tuple[str, ...] = ()


STUDIES = {
    "rotmnist": Study(
        "MNIST",
        (100, 300, 1000, 3000, 12000),
        "accuracy",
        {
            "steerable transformer, trained upright": ("rotmnist-transformer-k4-cpu", "data.train_rotation=none"),
            "plain CNN, trained upright": ("rotmnist-cnn-cpu", "data.train_rotation=none"),
            "plain CNN, trained with rotations": ("rotmnist-cnn-rotated-cpu", "data.train_rotation=none"),
        },
        ("data.test=10000", "data.validation=0"),
    ),
    "hippocampus": Study(
        "Hippocampus",
        (8, 16, 32, 64, 156),
        "dice",
        {
            "steerable transformer, trained upright": ("hippocampus-transformer-l2-cpu",),
            "DynUNet, trained upright": ("hippocampus-dynunet-cpu",),
            "DynUNet, trained with rotations": ("hippocampus-dynunet-rotated-cpu",),
        },
    ),
}


@dataclass(frozen=True)
class Planned:
    """One training: a network on a number of samples."""

    study: str
    network: str
    samples: int
    seed: int
    folder: Path
    experiment: ExperimentConfig


@dataclass(frozen=True)
class Point:
    """Scores of one trained network."""

    study: str
    network: str
    samples: int
    seed: int
    epochs: int
    minutes: float
    parameters: int
    scores: dict[str, float]
    """Accuracy or Dice of each of ``TESTS``."""
    errors: dict[str, float]
    """Their standard errors over test samples."""
    test_samples: int


def plan(roots: dict[str, Path], runs: Path, *, seeds: int = 1, threads: int = 1) -> list[Planned]:
    """All trainings of the data sets in ``roots``: the smallest number of samples first."""
    planned = []
    for name, root in roots.items():
        study = STUDIES[name]
        for samples, seed in ((samples, seed) for samples in study.sizes for seed in range(seeds)):
            for network, (preset, *changes) in study.networks.items():
                folder = runs / name / f"{network.replace(', ', '-').replace(' ', '-')}-{samples}-seed{seed}"
                sizes = [f"data.root={root}", f"data.train={samples}", f"seed={seed}", f"training.threads={threads}"]
                overrides = [*study.overrides, *changes, *sizes]
                planned.append(Planned(name, network, samples, seed, folder, resolve_config(preset, overrides)))
    return planned


def measure_points(
    planned: Sequence[Planned],
    *,
    minutes: float,
    reporter: Callable[[], Reporter] = Reporter,
) -> Iterator[Point]:
    """Train what is not trained yet, each for this many minutes, and test it upright and rotated."""
    for one in planned:
        path = one.folder / "efficiency.json"
        if path.exists():
            yield Point(**json.loads(path.read_text()))
            continue
        experiment = _timed_experiment(one, minutes)
        if not is_finished(one.folder, experiment):
            resume = (one.folder / "config.yaml").exists()
            train(experiment, out=one.folder, resume=resume, reporter=reporter())
        point = _point(one)
        write_json(path, asdict(point))
        yield point


def seconds_per_step(experiment: ExperimentConfig, splits: data.Splits) -> float:
    """Median time of a training step, with loading of its samples."""
    fabric = make_fabric(experiment.training)
    learner = Learner(
        fabric, models.build(experiment.model), experiment.training, make_task(experiment, splits.classes)
    )
    learner.module.train()
    order, times = cycle(range(len(splits.train))), []
    for _ in range(_WARM_UP + _TIMED):
        start = time.perf_counter()
        samples = [splits.train[i] for i in islice(order, experiment.training.batch_size)]
        x, labels = torch.stack([x for x, _ in samples]), torch.stack([torch.as_tensor(label) for _, label in samples])
        learner.step([(x, labels)], 1e-6)
        times.append(time.perf_counter() - start)
    return statistics.median(times[_WARM_UP:])


def _timed_experiment(one: Planned, minutes: float) -> ExperimentConfig:
    """The experiment with as many epochs as fit into the minutes; of a started run, those that it was started with."""
    if (one.folder / "config.yaml").exists():
        return resolve_config(one.folder)
    splits = data.load(one.experiment.data)
    batch_size = min(one.experiment.training.batch_size, len(splits.train))
    experiment = resolve_config(one.experiment, [f"training.batch_size={batch_size}"])
    if experiment.training.threads:
        torch.set_num_threads(experiment.training.threads)
    steps = len(splits.train) // batch_size
    epochs = int(60 * minutes / (steps * seconds_per_step(experiment, splits)))
    epochs = min(max(epochs, 1), MOST_EPOCHS)
    changes = [f"training.epochs={epochs}", f"training.validate_every={epochs}"]
    return resolve_config(experiment, changes)


def _point(one: Planned) -> Point:
    run, study = open_run(one.folder), STUDIES[one.study]
    metrics: dict[str, Any] = json.loads((one.folder / "metrics.json").read_text())
    scores, errors, count = {}, {}, 0
    for test, rotation in TESTS.items():
        found = run.evaluate([f"data.test_rotation={rotation}"]).metrics
        scores[test] = float(found[study.score])
        count = int(found["samples"] if study.score == "accuracy" else found["cases"])
        errors[test] = binomial_error(scores[test], count) if study.score == "accuracy" else float(found["dice_error"])
    history = metrics["history"]
    return Point(
        one.study,
        one.network,
        one.samples,
        one.seed,
        len(history),
        history[-1]["seconds"] / 60,
        metrics["parameters"],
        scores,
        errors,
        count,
    )
