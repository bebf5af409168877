"""The run folder: its files, and reading a trained model back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steerformer import models
from steerformer.config import read_yaml, validate
from steerformer.models import Model
from steerformer.runs.config import ExperimentConfig
from steerformer.runs.spacing_range import SpacingRange

CONFIG, ENVIRONMENT, CHECKPOINT, BEST = "config.yaml", "environment.json", "last.ckpt", "best.safetensors"
METRICS, CASES = "metrics.json", "cases-test.csv"


@dataclass(frozen=True)
class RunFolder:
    """Contents of a run folder: its configuration, its best model in eval mode, and what it knows of its data."""

    folder: Path
    config: ExperimentConfig
    model: Model = field(repr=False)
    classes: tuple[str, ...]
    spacing: SpacingRange | None = None
    """Voxel spacing of the training cases; ``None`` for classifiers and for runs of earlier versions."""


def read_run_folder(folder: Path | str) -> RunFolder:
    """Read a run folder; ``ValueError`` of one line if it is not one, or has no model yet."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} is not a run folder of 'steerformer train': it has no {CONFIG}.")
    config: ExperimentConfig = validate(ExperimentConfig, read_yaml(folder / CONFIG), where=str(folder / CONFIG))
    if not (folder / BEST).is_file():
        raise ValueError(f"{folder} has no {BEST} yet: its first epoch is not finished.")
    model = models.load(folder / BEST)
    if model.config != config.model:
        raise ValueError(f"{folder / BEST} holds another model than {CONFIG} describes; it belongs to another run.")
    metrics = _read_metrics(folder / METRICS)
    classes = _class_names(metrics.get("classes"), config.model.classes)
    return RunFolder(folder, config, model, classes, SpacingRange.from_json(metrics.get("spacing")))


def _read_metrics(path: Path) -> dict[str, Any]:
    """The metrics file, or nothing if there is none that can be read."""
    try:
        metrics = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return metrics if isinstance(metrics, dict) else {}


def _class_names(names: object, count: int) -> tuple[str, ...]:
    """The names of the metrics file, or numbers if it has none."""
    if isinstance(names, list) and len(names) == count:
        return tuple(map(str, names))
    return tuple(map(str, range(count)))
