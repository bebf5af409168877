"""Data efficiency: steerable networks and plain ones, trained for equally many minutes on few and many samples."""

import hashlib
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
_WARM_UP, _TIMED = 2, 8
_PLAN = "plan.json"
_STEPS = 50  # of an epoch at least: checkpoints and metrics at its end then cost little


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
            "steerable transformer, trained upright": (
                "rotmnist-transformer-k4-cpu",
                "data.train_rotation=none",
                "data.augment=none",
            ),
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

    @property
    def settings(self) -> str:
        """Digest of the settings, wherever the data are; without defaults, so that new options do not change it."""
        dumped = self.experiment.model_dump_json(exclude={"data": {"root"}}, exclude_defaults=True)
        values: dict[str, Any] = json.loads(dumped)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def is_measured_by(self, point: "Point", minutes: float) -> bool:
        """Whether a point is the result of this training, with the same settings and minutes."""
        names = (point.study, point.network, point.samples, point.seed)
        same_settings = (point.settings, point.planned_minutes) == (self.settings, minutes)
        return names == (self.study, self.network, self.samples, self.seed) and same_settings


@dataclass(frozen=True)
class Point:
    """Scores of one trained network."""

    study: str
    network: str
    samples: int
    seed: int
    planned_minutes: float
    epochs: int
    passes: int
    """Over the training samples, in all epochs."""
    minutes: float
    """On the clock, for all of the training; longer than planned where the machine had other work."""
    parameters: int
    scores: dict[str, float]
    """Accuracy or Dice of each of ``TESTS``."""
    errors: dict[str, float]
    """Their standard errors over test samples."""
    test_samples: int
    settings: str = ""
    """Digest of the settings of the training; points of earlier versions have none."""


def plan(roots: dict[str, Path], runs: Path, *, seeds: int = 1, threads: int = 1) -> list[Planned]:
    """All trainings of the data sets in ``roots``: the smallest number of samples first."""
    planned = []
    for name, root in roots.items():
        study = STUDIES[name]
        for samples, seed in ((samples, seed) for samples in study.sizes for seed in range(seeds)):
            for network, (preset, *changes) in study.networks.items():
                folder = runs / name / f"{network.replace(', ', '-').replace(' ', '-')}-{samples}-seed{seed}"
                size = [f"data.root={root}", f"data.train={samples}", f"data.subset_seed={seed}", f"seed={seed}"]
                machine = [f"training.threads={threads}", "training.devices=1"]
                overrides = [*study.overrides, *changes, *size, *machine]
                planned.append(Planned(name, network, samples, seed, folder, resolve_config(preset, overrides)))
    return planned


def measure_points(
    planned: Sequence[Planned],
    *,
    minutes: float,
    known: Sequence[Point] = (),
    reporter: Callable[[], Reporter] = Reporter,
) -> Iterator[Point]:
    """Train what is not trained yet, each for this many minutes of CPU time, and test it upright and rotated.

    Trainings whose results are ``known`` are left out, even if their run folders are gone.
    """
    for one in planned:
        if any(one.is_measured_by(point, minutes) for point in known):
            continue
        path = one.folder / "efficiency.json"
        experiment = _started(one, minutes) or _timed_experiment(one, minutes)
        if not path.exists():
            if not is_finished(one.folder, experiment):
                resume = (one.folder / "config.yaml").exists()
                train(experiment, out=one.folder, resume=resume, reporter=reporter())
            write_json(path, asdict(_point(one, minutes)))
        yield Point(**json.loads(path.read_text()))


def seconds_per_step(experiment: ExperimentConfig, splits: data.Splits) -> float:
    """Median CPU time of a training step per thread, with loading of its samples.

    CPU time, since other work on the machine would change the time on the clock, and so how long networks are trained.
    """
    fabric = make_fabric(experiment.training)
    learner = Learner(
        fabric, models.build(experiment.model), experiment.training, make_task(experiment, splits.classes)
    )
    learner.module.train()
    order, times = cycle(range(len(splits.train))), []
    for _ in range(_WARM_UP + _TIMED):
        start = time.process_time()
        samples = [splits.train[i] for i in islice(order, experiment.training.batch_size)]
        x, labels = torch.stack([x for x, _ in samples]), torch.stack([torch.as_tensor(label) for _, label in samples])
        learner.step([tuple(fabric.to_device((x, labels)))], 1e-6)
        times.append(time.process_time() - start)
    return statistics.median(times[_WARM_UP:]) / torch.get_num_threads()


def _started(one: Planned, minutes: float) -> ExperimentConfig | None:
    """The experiment of a run that was started before; an error if it is not the planned one."""
    path, plan_path = one.folder / "config.yaml", one.folder / _PLAN
    if not path.exists():
        return None
    known = json.loads(plan_path.read_text()) if plan_path.exists() else {}
    if known != _plan_of(one, minutes):
        raise ValueError(
            f"{one.folder} has a run with other settings or minutes than this one; use another --runs, or remove it."
        )
    return resolve_config(one.folder)


def _plan_of(one: Planned, minutes: float) -> dict[str, Any]:
    """What a run depends on, but for the epochs, which are measured."""
    settings: dict[str, Any] = json.loads(one.experiment.model_dump_json())
    return {"minutes": minutes, "experiment": settings}


def _timed_experiment(one: Planned, minutes: float) -> ExperimentConfig:
    """The experiment with as many epochs as fit into the minutes of CPU time."""
    splits = data.load(one.experiment.data)
    batch_size = min(one.experiment.training.batch_size, len(splits.train))
    experiment = resolve_config(one.experiment, [f"training.batch_size={batch_size}"])
    if experiment.training.threads:
        torch.set_num_threads(experiment.training.threads)
    passes = -(-_STEPS * batch_size // len(splits.train))
    steps = passes * len(splits.train) // batch_size
    epochs = max(round(60 * minutes / (steps * seconds_per_step(experiment, splits))), 1)
    one.folder.mkdir(parents=True, exist_ok=True)
    write_json(one.folder / _PLAN, _plan_of(one, minutes))
    changes = [f"training.epochs={epochs}", f"training.validate_every={epochs}", f"training.passes={passes}"]
    return resolve_config(experiment, changes)


def _point(one: Planned, minutes: float) -> Point:
    run, study = open_run(one.folder), STUDIES[one.study]
    metrics: dict[str, Any] = json.loads((one.folder / "metrics.json").read_text())
    scores, errors, count = {}, {}, 0
    for test, rotation in TESTS.items():
        found = run.evaluate([f"data.test_rotation={rotation}"]).metrics
        scores[test] = float(found[study.score])
        count = int(found["samples"] if study.score == "accuracy" else found["cases"])
        error = binomial_error(scores[test], count) if study.score == "accuracy" else found["dice_error"]
        errors[test] = error or 0.0  # one case has none
    history = metrics["history"]
    return Point(
        one.study,
        one.network,
        one.samples,
        one.seed,
        minutes,
        len(history),
        len(history) * run.config.training.passes,
        history[-1]["seconds"] / 60,
        metrics["parameters"],
        scores,
        errors,
        count,
        one.settings,
    )
