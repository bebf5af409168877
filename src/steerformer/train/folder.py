"""Run folders: what is in them, and when they may be written to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steerformer import models
from steerformer.config import ConfigError, read_yaml, validate, write_yaml
from steerformer.files import write_json, write_whole
from steerformer.models import Model
from steerformer.train.checkpoint import load_checkpoint
from steerformer.train.config import ExperimentConfig
from steerformer.train.environment import describe_environment

CONFIG, ENVIRONMENT, CHECKPOINT, BEST = "config.yaml", "environment.json", "last.ckpt", "best.safetensors"
METRICS, CASES = "metrics.json", "cases-test.csv"
_FREE = {
    "training": {
        *("epochs", "patience", "devices", "num_nodes", "strategy", "threads", "workers"),
        *("eval_batch_size", "log_every", "checkpoint_every"),
    },
    "data": {"root"},
}


@dataclass(frozen=True)
class Run:
    """A run that was made: its folder, its configuration, its best model in eval mode, the names of its classes."""

    folder: Path
    config: ExperimentConfig
    model: Model
    classes: tuple[str, ...]


def open_run(folder: Path) -> Run:
    """The run in ``folder``; ``ValueError`` of one line if there is none, or none with a model yet."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} is no run of 'steerformer train': it has no {CONFIG}.")
    config: ExperimentConfig = validate(ExperimentConfig, read_yaml(folder / CONFIG), where=str(folder / CONFIG))
    if not (folder / BEST).is_file():
        raise ValueError(f"{folder} has no {BEST} yet: its first epoch is not done.")
    model = models.load(folder / BEST)
    if model.config != config.model:
        raise ValueError(f"{folder / BEST} holds another model than {CONFIG} describes; it belongs to another run.")
    return Run(folder, config, model, _classes(folder / METRICS, config.model.classes))


def read_resumable(folder: Path, experiment: ExperimentConfig, *, resume: bool) -> dict[str, Any] | None:
    """The checkpoint to go on from, or None for a run from its beginning; errors where neither is right."""
    holds_run = (folder / CONFIG).exists() or (folder / CHECKPOINT).exists()
    if holds_run and not resume:
        raise ConfigError(f"{folder} holds a run already; go on with it by --resume, or give another folder by --out.")
    if resume and not holds_run:
        raise ConfigError(f"there is no run in {folder} to resume.")
    if not resume or not (folder / CHECKPOINT).exists():
        return None
    checkpoint = load_checkpoint(folder / CHECKPOINT)
    now = experiment.model_dump(mode="json")
    differences = list(_differences(_up_to_date(checkpoint["experiment"]), now))
    if differences:
        raise ConfigError(
            f"cannot resume {folder} with another configuration: {'; '.join(differences[:3])}. "
            f"Only these may change: {', '.join(sorted(_FREE['training']))}, data.root."
        )
    return checkpoint


def start_folder(folder: Path, experiment: ExperimentConfig) -> None:
    """Make the folder, and write down what is run and where."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_whole(folder / CONFIG, write_yaml(experiment))
        write_json(folder / ENVIRONMENT, {**describe_environment(), "earlier": _earlier_starts(folder / ENVIRONMENT)})
    except OSError:
        if new:
            _remove(folder)
        raise


def _up_to_date(values: dict[str, Any]) -> dict[str, Any]:
    """With the defaults of keys that were not there yet when it was written."""
    try:
        return ExperimentConfig.model_validate(values).model_dump(mode="json")
    except ValueError:
        return values


def _classes(path: Path, count: int) -> tuple[str, ...]:
    """Names as the figures have them, or numbers where they are not known."""
    try:
        names = json.loads(path.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError):
        names = None
    known = isinstance(names, list) and len(names) == count
    return tuple(map(str, names if known else range(count)))


def _earlier_starts(path: Path) -> list[dict[str, Any]]:
    """Where and how a run that is resumed was started before."""
    try:
        last = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    earlier = last.pop("earlier", [])
    return [*earlier, last]


def _remove(folder: Path) -> None:
    for name in (CONFIG, ENVIRONMENT):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _differences(before: dict[str, Any], now: dict[str, Any], place: str = "") -> Any:
    """Sentences about keys that differ and may not."""
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if old == new or key in _FREE.get(place, ()):
            continue
        if isinstance(old, dict) and isinstance(new, dict) and not place:
            yield from _differences(old, new, key)
        else:
            yield f"{f'{place}.' if place else ''}{key} was {old!r}, now {new!r}"
