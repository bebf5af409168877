"""The Medical Segmentation Decathlon: tasks described by a dataset.json."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steerformer.data.cases import CaseFiles, load_cases, read_labeled_scan, shorten
from steerformer.data.config import DecathlonConfig
from steerformer.data.dataset import Progress, Splits, no_progress
from steerformer.io.errors import DataError
from steerformer.io.formats import split_suffix
from steerformer.io.scans import Scan

SOURCE = "a task: http://medicaldecathlon.com (unpack its archive)"


@dataclass(frozen=True)
class DecathlonTask:
    """The contents of dataset.json: volumes, modalities and classes."""

    title: str
    cases: tuple[CaseFiles, ...]
    modalities: tuple[str, ...]
    classes: tuple[str, ...]
    where: Path

    def describe(self) -> str:
        """One line for users."""
        modalities, classes = ", ".join(self.modalities), ", ".join(self.classes)
        return f"{len(self.cases)} volumes of {self.title}; modalities: {modalities}; classes: {classes}"


def load(config: DecathlonConfig, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets; volumes without labels are not used."""
    task = find(config)
    return load_cases(task.cases, task.classes, config, progress, where=task.where)


def find(config: DecathlonConfig) -> DecathlonTask:
    """The task in ``root``; a :class:`DataError` that says what is missing."""
    root = config.root
    if root is None:
        raise DataError(f"decathlon needs a root, the folder with dataset.json; get {SOURCE}.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; get {SOURCE}.")
    path = _find_json(root)
    values = _read_json(path)
    modalities = _numbered(values, "modality", path)
    classes = ("background", *_numbered(values, "labels", path)[1:])
    if config.channels not in (None, len(modalities)):
        raise DataError(f"{path} lists {len(modalities)} modalities, got channels={config.channels}.")
    if len(classes) < 2:
        raise DataError(f"{path} lists {len(classes)} label, expected the background and at least one more.")
    if repeated := [name for number, name in enumerate(classes) if name in classes[:number]]:
        raise DataError(f"{path} gives several labels the name {repeated[0]!r}.")
    entries = values.get("training")
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} lists no volumes under 'training'.")
    cases = tuple(_case(entry, path, modalities, classes) for entry in entries)
    _require_files(cases, path)
    return DecathlonTask(str(values.get("name", root.name)), cases, modalities, classes, path.parent)


def _find_json(root: Path) -> Path:
    if (root / "dataset.json").is_file():
        return root / "dataset.json"
    deeper = sorted(root.glob("*/dataset.json"))
    if len(deeper) != 1:
        found = f"several: {deeper[0].parent.name}, {deeper[1].parent.name}" if deeper else "none"
        raise DataError(f"{root} should hold dataset.json, or one folder that does, found {found}.")
    return deeper[0]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise DataError(f"{path} is not valid JSON.") from None
    if not isinstance(values, dict):
        raise DataError(f"{path} should hold a mapping, got {type(values).__name__}.")
    return values


def _numbered(values: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """The names in ``{"0": name, "1": name, ...}``."""
    found = values.get(key)
    if not isinstance(found, dict) or set(found) != {str(number) for number in range(len(found))} or not found:
        raise DataError(f"{path} should have {key!r} with the names of 0, 1, 2 and so on, got {found!r}.")
    return tuple(str(found[str(number)]) for number in range(len(found)))


def _case(entry: Any, path: Path, modalities: tuple[str, ...], classes: tuple[str, ...]) -> CaseFiles:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
        raise DataError(f"{path} should list an image and a label for each case of 'training', got {entry!r}.")
    image, label = (path.parent / entry[key] for key in ("image", "label"))
    return CaseFiles(split_suffix(image.name)[0], (image, label), partial(_read, image, label, modalities, classes))


def _require_files(cases: tuple[CaseFiles, ...], path: Path) -> None:
    missing = [str(file) for case in cases for file in case.files if not file.is_file()]
    if missing:
        raise DataError(f"{path} lists files that do not exist: {shorten(missing)}.")
    names = [case.name for case in cases]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} lists {shorten(repeated)} more than once.")


def _read(image: Path, label: Path, modalities: tuple[str, ...], classes: tuple[str, ...]) -> Scan:
    scan = read_labeled_scan(image, label, classes, None, dim=3)
    if len(scan.x) != len(modalities):
        raise DataError(
            f"{image} has {len(scan.x)} modalities, but dataset.json lists {len(modalities)}: {', '.join(modalities)}."
        )
    return scan
