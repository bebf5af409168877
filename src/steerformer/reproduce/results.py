"""What run folders say, gathered in one file small enough to keep beside the documentation."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from steerformer.config import read_yaml
from steerformer.files import write_json

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
"""Accuracy in the paper's table of classification, %: data, attention or not, number of degrees, test rotation."""
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
"""What of a run's environment is kept: nothing that names a machine or a place on it."""
_CHECKED = ("samples", "grid", "arbitrary", "angles", "accuracy", "cases", "sweep", "control", "control_run")
"""What of a run's check is kept: of classifiers accuracy against angle, of segmentations Dice."""


def collect(runs: Path) -> dict[str, Record]:
    """A record for each finished run below ``runs``, by the name of its folder."""
    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs} with runs.")
    folders = sorted(file.parent for file in runs.glob("*/config.yaml"))
    found = {folder.name: record for folder in folders if (record := _record(folder)) is not None}
    if not found:
        raise ValueError(f"{runs} holds no finished run; 'steerformer train' makes them.")
    return found


def keep(found: dict[str, Record], path: Path) -> None:
    """Write the records to a JSON file, beside those of other runs that it has already."""
    records = {**(_json(path) or {}), **found}
    write_json(path, dict(sorted(records.items())))


def copy_pictures(runs: Path, found: dict[str, Record], images: Path) -> None:
    """Put the pictures of the records' evaluations beside the page that will show them."""
    images.mkdir(parents=True, exist_ok=True)
    for name, record in found.items():
        for picture in record["pictures"]:
            shutil.copyfile(runs / name / picture, images / f"results-{name}-{picture}")


def _record(folder: Path) -> Record | None:
    metrics = _json(folder / "metrics.json")
    if metrics is None or not metrics.get("finished"):
        return None
    config = read_yaml(folder / "config.yaml")
    config["data"]["root"] = None  # a place on one machine says nothing to others
    environment = _json(folder / "environment.json") or {}
    environment = {key: environment[key] for key in _PUBLISHED if key in environment}
    environment["command"] = [_plain(word) for word in environment.get("command", [])]
    check = _json(folder / "check.json")
    return {
        "config": config,
        "metrics": metrics,
        "environment": environment,
        "evaluations": {file.stem: _evaluation(file) for file in sorted(folder.glob("evaluation-*.json"))},
        "pictures": _pictures(folder, check or {}),
        "check": check and {key: check[key] for key in _CHECKED if key in check} | _scenes(check),
    }


def _scenes(check: Record) -> Record:
    """The error of the logits of smooth scenes at any angle, which stand last among the layers."""
    layers = check.get("layers_arbitrary")
    return {"scenes": layers[-1]["total"]} if layers else {}


def _pictures(folder: Path, check: Record) -> list[str]:
    """Of cases, and of Dice against angle; those of classifiers are drawn from the records."""
    kinds = ("evaluation-*.png", *(["check.png"] if "sweep" in check else []))
    return [file.name for kind in kinds for file in sorted(folder.glob(kind))]


def _evaluation(file: Path) -> Record:
    values = _json(file) or {}
    if not {"data", "changes", "split", "rotations"} <= values.keys() or not {"accuracy", "dice"} & values.keys():
        raise ValueError(f"{file} was not written by 'steerformer evaluate'; move it out of the run folder.")
    values["data"]["root"] = None
    values["changes"] = [_plain(word) for word in values["changes"]]
    return values


def _plain(word: str) -> str:
    """A word of a command line with nothing of the machine in it: of paths, the last part."""
    key, equals, value = word.partition("=") if "=" in word else ("", "", word)
    last = re.split(r"[/\\]", value.rstrip("/"))[-1]
    return f"{key}{equals}{last}"


def _json(path: Path) -> Record | None:
    try:
        values: Record = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{path} is no JSON.") from None
    return values
