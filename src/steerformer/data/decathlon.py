"""Tasks of the Medical Segmentation Decathlon."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steerformer.data.base import DataError, Progress, Splits, ignore
from steerformer.data.config import DecathlonConfig
from steerformer.data.sources import Labeled, Source, listed, load_sources, read_pair

SOURCE = "a task: http://medicaldecathlon.com (unpack its archive)"


@dataclass(frozen=True)
class Task:
    """What dataset.json says: which volumes, with which modalities and classes."""

    title: str
    sources: tuple[Source, ...]
    modalities: tuple[str, ...]
    classes: tuple[str, ...]
    where: Path

    def describe(self) -> str:
        """In a few words."""
        modalities, classes = ", ".join(self.modalities), ", ".join(self.classes)
        return f"{len(self.sources)} volumes of {self.title}; modalities: {modalities}; classes: {classes}"


def load(config: DecathlonConfig, progress: Progress = ignore) -> Splits:
    """Volumes to train, validate and test on; those that come without labels are not used."""
    task = find(config)
    return load_sources(task.sources, task.classes, config, progress, where=task.where)


def find(config: DecathlonConfig) -> Task:
    """The task in ``root``; a :class:`DataError` that says what is missing."""
    root = config.root
    if root is None:
        raise DataError(f"decathlon needs a root, the folder with dataset.json; get {SOURCE}.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; get {SOURCE}.")
    path = _listing(root)
    values = _read(path)
    modalities = _numbered(values, "modality", path)
    classes = ("background", *_numbered(values, "labels", path)[1:])
    if config.channels not in (None, len(modalities)):
        raise DataError(f"{path} lists {len(modalities)} modalities, got channels={config.channels}.")
    if len(classes) < 2:
        raise DataError(f"{path} lists {len(classes)} label, expected the background and at least one more.")
    if twice := [name for number, name in enumerate(classes) if name in classes[:number]]:
        raise DataError(f"{path} gives several labels the name {twice[0]!r}.")
    entries = values.get("training")
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} lists no volumes under 'training'.")
    sources = tuple(_source(entry, path, modalities, classes) for entry in entries)
    _require_files(sources, path)
    return Task(str(values.get("name", root.name)), sources, modalities, classes, path.parent)


def _listing(root: Path) -> Path:
    if (root / "dataset.json").is_file():
        return root / "dataset.json"
    deeper = sorted(root.glob("*/dataset.json"))
    if len(deeper) != 1:
        found = f"several: {deeper[0].parent.name}, {deeper[1].parent.name}" if deeper else "none"
        raise DataError(f"{root} should hold dataset.json, or one folder that does, found {found}.")
    return deeper[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise DataError(f"{path} is no JSON.") from None
    if not isinstance(values, dict):
        raise DataError(f"{path} should hold a mapping, got {type(values).__name__}.")
    return values


def _numbered(values: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """The names of ``{"0": name, "1": name, ...}``."""
    found = values.get(key)
    if not isinstance(found, dict) or set(found) != {str(number) for number in range(len(found))} or not found:
        raise DataError(f"{path} should have {key!r} with the names of 0, 1, 2 and so on, got {found!r}.")
    return tuple(str(found[str(number)]) for number in range(len(found)))


def _source(entry: Any, path: Path, modalities: tuple[str, ...], classes: tuple[str, ...]) -> Source:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
        raise DataError(f"{path} should list an image and a label for each case of 'training', got {entry!r}.")
    image, label = (path.parent / entry[key] for key in ("image", "label"))
    name = image.name.removesuffix(".gz").removesuffix(".nii")
    return Source(name, (image, label), partial(_labeled, image, label, modalities, classes))


def _require_files(sources: tuple[Source, ...], path: Path) -> None:
    missing = [str(file) for source in sources for file in source.files if not file.is_file()]
    if missing:
        raise DataError(f"{path} lists files that are not there: {listed(missing)}.")
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} lists {listed(twice)} more than once.")


def _labeled(image: Path, label: Path, modalities: tuple[str, ...], classes: tuple[str, ...]) -> Labeled:
    case = read_pair(image, label, classes, None, dim=3)
    if len(case.x) != len(modalities):
        raise DataError(
            f"{image} has {len(case.x)} modalities, but dataset.json lists {len(modalities)}: {', '.join(modalities)}."
        )
    return case
