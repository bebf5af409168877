"""Collect the metrics of run folders in one JSON file, small enough for the documentation."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steerformer.config import read_yaml, validate
from steerformer.io.atomic import write_json
from steerformer.runs import ExperimentConfig

PAPER: dict[tuple[str, bool, int, str], float] = {
    ("rotmnist", False, 4, "any"): 98.72,
    ("rotmnist", False, 8, "any"): 98.97,
    ("rotmnist", True, 4, "any"): 98.82,
    ("rotmnist", True, 8, "any"): 99.03,
    ("modelnet10", False, 4, "z"): 90.13,
    ("modelnet10", False, 4, "so3"): 86.62,
    ("modelnet10", True, 4, "z"): 90.40,
    ("modelnet10", True, 4, "so3"): 86.80,
}
"""Accuracy in the paper's table of classification, in %, by data, attention, number of degrees and test rotation."""
PAPER_PARAMETERS: dict[tuple[str, bool, int], float] = {
    ("rotmnist", False, 4): 1.18,
    ("rotmnist", False, 8): 2.54,
    ("rotmnist", True, 4): 1.13,
    ("rotmnist", True, 8): 2.24,
    ("modelnet10", False, 4): 1.08,
    ("modelnet10", True, 4): 0.92,
    ("ph2", False, 4): 0.35,
    ("ph2", False, 8): 0.96,
    ("ph2", True, 4): 0.44,
    ("ph2", True, 8): 1.22,
    ("decathlon", False, 3): 0.12,
    ("decathlon", True, 3): 0.16,
}
"""Millions of parameters in the same table, a complex one counted as one."""

Record = dict[str, Any]
_PUBLISHED = (
    "python",
    "packages",
    "commit",
    "processor",
    "cores",
    "threads",
    "gpus",
    "memory_gb",
    "command",
    "started",
)
"""Keys of a run's environment that are collected: none identifies a machine or a path."""
_CHECKED = ("samples", "grid", "arbitrary", "angles", "accuracy", "cases", "sweep", "control", "control_run")
"""Keys of a run's check that are collected: accuracy against angle for classification, Dice for segmentation."""


def collect(runs: Path) -> dict[str, Record]:
    """A record of each finished run in ``runs``, by the name of its folder.

    Raises a one-line ``ValueError`` for a run of an earlier version, whose configuration has other keys.
    """
    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs}; name the folder of the run folders.")
    folders = sorted(file.parent for file in runs.glob("*/config.yaml"))
    found = {folder.name: record for folder in folders if (record := _record(folder)) is not None}
    if not found:
        raise ValueError(f"{runs} has no finished run; 'steerformer train' writes run folders.")
    return found


def save_records(found: dict[str, Record], path: Path) -> None:
    """Add records to a JSON file; those of other runs stay."""
    records = {**(_json(path) or {}), **found}
    write_json(path, dict(sorted(records.items())))


def copy_figures(runs: Path, found: dict[str, Record], images: Path) -> None:
    """Copy the figures of evaluations into the image folder of the page."""
    images.mkdir(parents=True, exist_ok=True)
    for name, record in found.items():
        for picture in record["pictures"]:
            shutil.copyfile(runs / name / picture, images / f"results-{name}-{picture}")


def _test_rotation(data: Record) -> str:
    """How test samples are rotated."""
    return str(data.get("test_rotation", "none")).replace("none", "upright")


def _grid(data: Record) -> str:
    """Orientation of the grid to the objects; aligned in runs older than this key."""
    return str(data.get("grid", "aligned"))


def classification_tests(record: Record) -> Iterator[tuple[str, int, Record]]:
    """Every test of a run: rotation of the samples, number of rotations averaged over, and metrics."""
    metrics = record["metrics"]
    if "test_accuracy" in metrics:
        count = sum(map(sum, metrics["confusion"]))
        yield (
            _test_rotation(record["config"]["data"]),
            1,
            {**metrics, "samples": count, "accuracy": metrics["test_accuracy"]},
        )
    for evaluation in record["evaluations"].values():
        own, data = record["config"]["data"], evaluation["data"]
        rotation, is_other = _test_rotation(data), _grid(data) != _grid(own)
        if evaluation["split"] == "test" and (
            is_other or (rotation, evaluation["rotations"]) != (_test_rotation(own), 1)
        ):
            yield rotation, evaluation["rotations"], {**evaluation, "grid": _grid(data) if is_other else None}


def _record(folder: Path) -> Record | None:
    metrics = _json(folder / "metrics.json")
    if metrics is None or not metrics.get("finished"):
        return None
    config = read_yaml(folder / "config.yaml")
    validate(ExperimentConfig, config, where=str(folder / "config.yaml"))
    config["data"]["root"] = None  # a path of one machine
    last = _json(folder / "environment.json") or {}
    first = next(iter(last.get("earlier", [])), last)  # a resumed run was started by another command
    environment = {key: last[key] for key in _PUBLISHED if key in last}
    environment["command"] = [_without_path(word) for word in first.get("command", [])]
    check = _json(folder / "check.json")
    return {
        "config": config,
        "metrics": metrics,
        "environment": environment,
        "evaluations": {file.stem: _evaluation(file) for file in sorted(folder.glob("evaluation-*.json"))},
        "pictures": [file.name for file in sorted(folder.glob("evaluation-*.png"))],
        "check": check and {key: check[key] for key in _CHECKED if key in check} | _scenes(check),
    }


def _scenes(check: Record) -> Record:
    """Equivariance error of the logits on smooth scenes at random angles: the last one of the layers."""
    layers = check.get("layers_arbitrary")
    return {"scenes": layers[-1]["total"]} if layers else {}


def _evaluation(file: Path) -> Record:
    values = _json(file) or {}
    if not {"data", "changes", "split", "rotations"} <= values.keys() or not {"accuracy", "dice"} & values.keys():
        raise ValueError(f"{file} was not written by 'steerformer evaluate'; move it out of the run folder.")
    values["data"]["root"] = None
    values["changes"] = [_without_path(word) for word in values["changes"]]
    return values


def _without_path(word: str) -> str:
    """A word of a command line with paths cut to their last part."""
    key, equals, value = word.partition("=") if "=" in word else ("", "", word)
    last = re.split(r"[/\\]", value.rstrip("/"))[-1]
    return f"{key}{equals}{last}"


def _json(path: Path) -> Record | None:
    try:
        values: Record = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{path} is not valid JSON.") from None
    return values
