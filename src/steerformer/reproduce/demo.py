"""The demonstration: four small networks on rotated digits, trained and measured in a few minutes."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from steerformer import data
from steerformer.api import open_run, train
from steerformer.audit import (
    LayerBudget,
    LogitChange,
    accuracy_by_angle,
    logit_change,
    random_rotations,
    scene_budget,
    some_samples,
    upright,
)
from steerformer.audit.rotations import input_type
from steerformer.config import override, validate
from steerformer.metrics.statistics import binomial_error
from steerformer.models import preset
from steerformer.runs import ExperimentConfig
from steerformer.training import Reporter

NAMES = {
    "demo-transformer": "steerable transformer",
    "demo-convolution": "steerable convolutions",
    "demo-cnn": "plain CNN",
    "demo-cnn-upright": "plain CNN, upright",
}
ANGLES = tuple(range(0, 361, 15))
_QUICK = ("training.epochs=1", "data.train=400", "data.validation=100", "data.test=200")
DIGITS_TO_ROTATE = 500
_BATCH = 50


@dataclass(frozen=True)
class Measured:
    """One network: its training metrics, and its response to rotated digits."""

    name: str
    model: nn.Module
    metrics: dict[str, Any]
    """``metrics.json`` of its run."""
    samples: dict[str, int]
    """Training, validation and test digits."""
    seconds_per_batch: float
    """Forward and backward pass of 50 digits, the median of five."""
    grid_rotations: float
    """Largest relative change of the logits under rotations by multiples of 90 degrees; nothing interpolated."""
    rotated_digits: LogitChange
    """Change of the logits under random rotations of digits, interpolated."""
    layers: list[LayerBudget]
    """Errors on smooth scenes at random angles, the logits last."""
    accuracy: list[float]
    """On upright digits rotated by each of ``ANGLES``."""

    @property
    def test_accuracy(self) -> float:
        """On digits at random angles."""
        return float(self.metrics["test_accuracy"])

    @property
    def standard_error(self) -> float:
        """Of the accuracy, over test digits."""
        return binomial_error(self.test_accuracy, self.samples["test"])

    @property
    def parameters(self) -> int:
        """Real parameters."""
        return int(self.metrics["parameters"])

    @property
    def any_angle(self) -> float:
        """Relative change of the logits of smooth scenes at random angles, nothing interpolated."""
        return self.layers[-1].total


def run_demo(
    out: Path,
    *,
    quick: bool = False,
    reporter: Callable[[str], Reporter] = lambda name: Reporter(),
) -> list[Measured]:
    """Train what is not trained yet, and measure; ``reporter`` is asked for one reporter for each training."""
    found = []
    for name in NAMES:
        experiment = demo_experiment(name, quick=quick)
        folder = out / ("runs-quick" if quick else "runs") / name
        if not is_finished(folder, experiment):
            resume = (folder / "config.yaml").exists()
            train(experiment, out=folder, resume=resume, reporter=reporter(NAMES[name]))
        found.append(measure(name, folder))
    return found


def demo_experiment(name: str, *, quick: bool) -> ExperimentConfig:
    """A preset of the demonstration; ``quick`` is one epoch of few digits, only to show that it works."""
    values = override(preset(name), _QUICK if quick else ())
    experiment: ExperimentConfig = validate(ExperimentConfig, values, where=name)
    return experiment


def is_finished(folder: Path, experiment: ExperimentConfig) -> bool:
    """Whether the folder holds a finished run of this experiment."""
    try:
        finished = json.loads((folder / "metrics.json").read_text())["finished"]
        return bool(finished) and open_run(folder).config == experiment
    except (OSError, ValueError, KeyError):
        return False


def measure(name: str, folder: Path) -> Measured:
    """Measure a finished run."""
    run = open_run(folder)
    model = run.model.eval()
    splits = data.load(run.config.data)
    upright_splits = data.load(upright(run.config.data))
    x, labels = some_samples(upright_splits.test, DIGITS_TO_ROTATE)
    group = input_type(model).group
    return Measured(
        name=NAMES[name],
        model=model,
        metrics=json.loads((folder / "metrics.json").read_text()),
        samples={part: len(getattr(splits, part)) for part in ("train", "validation", "test")},
        seconds_per_batch=_seconds_per_batch(model, x[:_BATCH], labels[:_BATCH]),
        grid_rotations=logit_change(model, x[:100], group.grid_rotations()[1:]).worst,
        rotated_digits=logit_change(model, x[:200], random_rotations(group, 4)),
        layers=scene_budget(model, x, random_rotations(group, 4)),
        accuracy=accuracy_by_angle(model, x, labels, ANGLES)["plane"],
    )


def _seconds_per_batch(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    """In eval mode and with discarded gradients, so that the model does not change."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        F.cross_entropy(model(x), labels).backward()
        times.append(time.perf_counter() - start)
        model.zero_grad(set_to_none=True)
    return statistics.median(times[1:])
