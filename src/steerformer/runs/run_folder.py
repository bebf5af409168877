"""The run folder: its files, and reading a trained model back."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from steerformer import models
from steerformer.config import read_yaml, validate
from steerformer.models import Model
from steerformer.runs.config import ExperimentConfig

CONFIG, ENVIRONMENT, CHECKPOINT, BEST = "config.yaml", "environment.json", "last.ckpt", "best.safetensors"
METRICS, CASES = "metrics.json", "cases-test.csv"


@dataclass(frozen=True)
class RunFolder:
    """Contents of a run folder: its configuration, its best model in eval mode, and the names of its classes."""

    folder: Path
    config: ExperimentConfig
    model: Model = field(repr=False)
    classes: tuple[str, ...]


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
    return RunFolder(folder, config, model, _class_names(folder / METRICS, config.model.classes))


def _class_names(path: Path, count: int) -> tuple[str, ...]:
    """Names from the metrics file, or numbers if it has none."""
    try:
        names = json.loads(path.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError):
        names = None
    known = isinstance(names, list) and len(names) == count
    return tuple(map(str, names if known else range(count)))
