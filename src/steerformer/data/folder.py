"""A folder of one's own: one sub-folder a class, with images or with volumes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steerformer.data import cache
from steerformer.data.base import DataError, Progress, Samples, Splits, ignore, shuffled
from steerformer.data.config import FolderConfig
from steerformer.data.files import IMAGES, VOLUMES, kind_of, read_file

_CHUNK = 64
_SPLITS = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}


class FolderSamples(Samples):
    """Images (channels, size, size) or volumes (channels, size, size, size)."""

    def __init__(self, x: Tensor, labels: Tensor, numbers: Tensor, files: tuple[Path, ...], *, seed: int) -> None:
        super().__init__(labels, numbers, seed=seed)
        self.x = x
        self.files = files

    def sample(self, index: int) -> Tensor:
        return self.x[self.numbers[index]].float()


@dataclass(frozen=True)
class Listing:
    """All files, the class of each, and the split whose folder each is in (``None`` without such folders)."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    splits: tuple[str | None, ...]
    classes: tuple[str, ...]
    kind: str

    def describe(self) -> str:
        """In a few words."""
        return f"{len(self.files)} {self.kind}s of {len(self.classes)} classes"


def load(config: FolderConfig, progress: Progress = ignore) -> Splits:
    """Train, validation and test files. Every file is read and checked once; what came of it is kept in the cache."""
    listing = find(config.root)
    how: dict[str, Any] = {"size": config.size, "channels": config.channels, "scale": config.scale}
    name = f"folder-{cache.fingerprint(list(listing.files), version=2, **how)}"
    stored = torch.float16 if listing.kind == "image" else torch.float32  # 0 to 1 needs no more

    def read(start: int, stop: int) -> dict[str, Tensor]:
        chosen = listing.files[start:stop]
        return {"x": torch.stack([read_file(path, **how).to(stored) for path in chosen])}

    if not cache.has(name):
        refuse_leaks(listing)
    x = cache.in_parts(name, len(listing.files), _CHUNK, read, f"reading {listing.kind}s", progress)["x"]
    labels = torch.tensor(listing.labels)

    def part(numbers: Tensor) -> FolderSamples:
        return FolderSamples(x, labels[numbers], numbers, listing.files, seed=config.seed)

    train, validation, test = divide(listing, config)
    return Splits(part(train), part(validation), part(test), listing.classes)


def find(root: Path | None) -> Listing:
    """The files below ``root``, in alphabetical order; a :class:`DataError` that says what is wrong with them."""
    if root is None:
        raise DataError("folder needs a root: a folder with one sub-folder a class, of images or of volumes.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}.")
    by_split = _by_split(root)
    classes = tuple(folder.name for folder in _folders(next(iter(by_split.values()))))
    if len(classes) < 2:
        found = f"only {classes[0]!r}" if classes else "none"
        raise DataError(f"{root} should have a sub-folder for each of at least two classes, found {found}.")
    found_files: list[tuple[Path, int, str | None]] = []
    for split, place in by_split.items():
        for folder in _folders(place):
            if folder.name not in classes:
                raise DataError(f"{folder} is a class that {by_split['train']} does not have.")
            found_files += [(path, classes.index(folder.name), split) for path in _files(folder)]
    files, labels, splits = zip(*found_files, strict=True)
    return Listing(files, labels, splits, classes, _one_kind(files))


def _by_split(root: Path) -> dict[str | None, Path]:
    """The folder of each split if ``train`` has folders of classes, else ``root`` for all."""
    if not _folders(root / "train"):
        return {None: root}
    by_split: dict[str | None, Path] = {}
    for place in _folders(root):
        split = _SPLITS.get(place.name)
        if split is None:
            known = ", ".join(_SPLITS)
            raise DataError(f"{place} lies beside {root / 'train'} but is none of {known}; rename or move it.")
        if split in by_split:
            raise DataError(f"{by_split[split]} and {place} are both for {split}; keep one.")
        if not _folders(place):
            raise DataError(f"{place} should have a sub-folder for each class, as {root / 'train'} has.")
        by_split[split] = place
    return {split: by_split[split] for split in ("train", "validation", "test") if split in by_split}


def refuse_leaks(listing: Listing) -> None:
    """A :class:`DataError` if folders of two splits have the same file: one would test on what one trains on."""
    by_size: dict[int, list[tuple[Path, str | None]]] = {}
    for path, split in zip(listing.files, listing.splits, strict=True):
        by_size.setdefault(path.stat().st_size, []).append((path, split))
    for alike in by_size.values():
        if len({split for _, split in alike}) < 2:
            continue  # no other split has a file of this size, which spares reading these
        seen: dict[str, tuple[Path, str | None]] = {}
        for path, split in alike:
            other, its_split = seen.setdefault(cache.sha256(path), (path, split))
            if its_split != split:
                raise DataError(f"{other} and {path} are the same file, one for {its_split} and one for {split}.")


def divide(listing: Listing, config: FolderConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the files to train, validate and test on: by their folders if there are such, else by the seed."""
    numbers = torch.arange(len(listing.files))
    own = {split: torch.tensor([found == split for found in listing.splits]) for split in ("validation", "test")}
    rest = numbers[~(own["validation"] | own["test"])]
    test, validation = numbers[own["test"]], numbers[own["validation"]]
    if not len(test):
        rest, test = _drawn(listing, rest, config.test, config.seed, 4)
    if not len(validation):
        rest, validation = _drawn(listing, rest, config.validation, config.seed, 5)
    return rest, validation, test


def _drawn(listing: Listing, numbers: Tensor, share: float, *key: int) -> tuple[Tensor, Tensor]:
    """What stays, and a share of each class that is set apart: at least one file of it, and never all."""
    labels = torch.tensor(listing.labels)
    apart = torch.zeros(len(listing.files), dtype=torch.bool)
    for label in range(len(listing.classes)):
        members = numbers[labels[numbers] == label]
        count = min(max(round(share * len(members)), 1), len(members) - 1) if share and len(members) else 0
        apart[members[shuffled(len(members), *key, label)[:count]]] = True
    return numbers[~apart[numbers]], numbers[apart[numbers]]


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and kind_of(path))
    if not files:
        raise DataError(
            f"the class {folder} is empty: no image ({', '.join(IMAGES)}) or volume ({', '.join(VOLUMES)})."
        )
    return files


def _one_kind(files: tuple[Path, ...]) -> str:
    kind = kind_of(files[0])
    assert kind is not None
    other = next((path for path in files if kind_of(path) != kind), None)
    if other is not None:
        pair = (files[0], other) if kind == "image" else (other, files[0])
        raise DataError(f"{pair[0]} is an image and {pair[1]} a volume; one folder holds one kind, not both.")
    return kind
