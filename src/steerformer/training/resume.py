"""Starting a run folder, and deciding whether a run may resume in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steerformer.config import ConfigError, write_yaml
from steerformer.io.atomic import write_atomic, write_json
from steerformer.runs.config import ExperimentConfig
from steerformer.runs.run_folder import CHECKPOINT, CONFIG, ENVIRONMENT
from steerformer.training.checkpointing import load_checkpoint
from steerformer.training.environment import describe_environment

_MAY_CHANGE = {
    "training": {
        *("epochs", "patience", "devices", "num_nodes", "strategy", "threads", "workers"),
        *("eval_batch_size", "log_every", "checkpoint_every"),
    },
    "data": {"root"},
}


def read_resumable(folder: Path, experiment: ExperimentConfig, *, resume: bool) -> dict[str, Any] | None:
    """The checkpoint to resume from, or ``None`` for a new run; a :class:`ConfigError` if neither is possible."""
    holds_run = (folder / CONFIG).exists() or (folder / CHECKPOINT).exists()
    if holds_run and not resume:
        raise ConfigError(
            f"{folder} already holds a run; continue it with resume=True (--resume), or choose another out (--out)."
        )
    if resume and not holds_run:
        raise ConfigError(f"there is no run in {folder} to resume.")
    if not resume or not (folder / CHECKPOINT).exists():
        return None
    checkpoint = load_checkpoint(folder / CHECKPOINT)
    now = experiment.model_dump(mode="json")
    differences = list(_differences(_with_defaults(checkpoint["experiment"]), now))
    if differences:
        raise ConfigError(
            f"cannot resume {folder} with another configuration: {'; '.join(differences[:3])}. "
            f"Only these may change: {', '.join(sorted(_MAY_CHANGE['training']))}, data.root."
        )
    return checkpoint


def start_folder(folder: Path, experiment: ExperimentConfig) -> None:
    """Create the folder and write the configuration and the environment."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_atomic(folder / CONFIG, write_yaml(experiment))
        write_json(folder / ENVIRONMENT, {**describe_environment(), "earlier": _earlier_starts(folder / ENVIRONMENT)})
    except OSError:
        if new:
            _remove(folder)
        raise


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the defaults of keys that did not exist when it was written."""
    try:
        return ExperimentConfig.model_validate(values).model_dump(mode="json")
    except ValueError:
        return values


def _earlier_starts(path: Path) -> list[dict[str, Any]]:
    """Environments of earlier starts of a resumed run."""
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


def _differences(before: dict[str, Any], now: dict[str, Any], place: str = "") -> Iterator[str]:
    """Keys that differ but must not."""
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if old == new or key in _MAY_CHANGE.get(place, ()):
            continue
        if isinstance(old, dict) and isinstance(new, dict) and not place:
            yield from _differences(old, new, key)
        else:
            yield f"{f'{place}.' if place else ''}{key} was {old!r}, now {new!r}"
