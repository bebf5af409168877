"""A folder with one sub-folder of images or volumes per class."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steerformer.data import cache
from steerformer.data.config import FolderConfig
from steerformer.data.dataset import ClassificationDataset, Progress, Splits, no_progress
from steerformer.data.preprocessing import read_sample
from steerformer.data.seeding import shuffled
from steerformer.io.errors import DataError
from steerformer.io.formats import IMAGE_SUFFIXES, VOLUME_SUFFIXES, file_kind

_CHUNK = 64
_SPLITS = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}


class ImageFolderDataset(ClassificationDataset):
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
        """One line for users."""
        return f"{len(self.files)} {self.kind}s of {len(self.classes)} classes"


def load(config: FolderConfig, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets. Every file is read and checked once, and cached."""
    listing = find(config)
    options: dict[str, Any] = {"size": config.size, "channels": config.channels, "normalize": config.normalize}
    name = f"folder-{cache.fingerprint(list(listing.files), version=3, **options)}"
    dtype = torch.float16 if listing.kind == "image" else torch.float32  # 0 to 1 fits into half precision

    def read(start: int, stop: int) -> dict[str, Tensor]:
        chosen = listing.files[start:stop]
        return {"x": torch.stack([read_sample(path, **options).to(dtype) for path in chosen])}

    if not cache.is_cached(name):
        require_no_leaks(listing)
    x = cache.cached_in_parts(name, len(listing.files), _CHUNK, read, f"reading {listing.kind}s", progress)["x"]
    labels = torch.tensor(listing.labels)

    def part(numbers: Tensor) -> ImageFolderDataset:
        return ImageFolderDataset(x, labels[numbers], numbers, listing.files, seed=config.seed)

    train, validation, test = split_files(listing, config)
    return Splits(part(train), part(validation), part(test), listing.classes)


def find(config: FolderConfig) -> Listing:
    """The files below ``root``, in alphabetical order; a :class:`DataError` that says what is wrong with them."""
    root = config.root
    if root is None:
        raise DataError("folder needs a root: a folder with one sub-folder of images or volumes per class.")
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
            raise DataError(f"{place} is next to {root / 'train'}, but is not one of {known}; rename or move it.")
        if split in by_split:
            raise DataError(f"{by_split[split]} and {place} are both for {split}; keep one.")
        if not _folders(place):
            raise DataError(f"{place} should have a sub-folder for each class, as {root / 'train'} has.")
        by_split[split] = place
    return {split: by_split[split] for split in ("train", "validation", "test") if split in by_split}


def require_no_leaks(listing: Listing) -> None:
    """Raise a :class:`DataError` if two splits contain the same file: training data would leak into the test."""
    by_size: dict[int, list[tuple[Path, str | None]]] = {}
    for path, split in zip(listing.files, listing.splits, strict=True):
        by_size.setdefault(path.stat().st_size, []).append((path, split))
    for alike in by_size.values():
        if len({split for _, split in alike}) < 2:
            continue  # files of different sizes differ: no need to read them
        seen: dict[str, tuple[Path, str | None]] = {}
        for path, split in alike:
            other, other_split = seen.setdefault(cache.sha256(path), (path, split))
            if other_split != split:
                raise DataError(f"{other} and {path} are the same file, in {other_split} and in {split}; keep one.")


def split_files(listing: Listing, config: FolderConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the training, validation and test files: by split folders if they exist, else drawn with the seed."""
    numbers = torch.arange(len(listing.files))
    in_folder = {split: torch.tensor([found == split for found in listing.splits]) for split in ("validation", "test")}
    train = numbers[~(in_folder["validation"] | in_folder["test"])]
    test, validation = numbers[in_folder["test"]], numbers[in_folder["validation"]]
    if not len(test):
        train, test = _hold_out_fraction(listing, train, config.test, config.seed, 4)
    if not len(validation):
        train, validation = _hold_out_fraction(listing, train, config.validation, config.seed, 5)
    return train, validation, test


def _hold_out_fraction(listing: Listing, numbers: Tensor, fraction: float, *key: int) -> tuple[Tensor, Tensor]:
    """The remaining and the held-out files; of each class at least one is held out, and never all."""
    labels = torch.tensor(listing.labels)
    held_out = torch.zeros(len(listing.files), dtype=torch.bool)
    for label in range(len(listing.classes)):
        members = numbers[labels[numbers] == label]
        count = min(max(round(fraction * len(members)), 1), len(members) - 1) if fraction and len(members) else 0
        held_out[members[shuffled(len(members), *key, label)[:count]]] = True
    return numbers[~held_out[numbers]], numbers[held_out[numbers]]


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and file_kind(path))
    if not files:
        raise DataError(
            f"the class {folder} is empty: no image ({', '.join(IMAGE_SUFFIXES)}) or volume "
            f"({', '.join(VOLUME_SUFFIXES)})."
        )
    return files


def _one_kind(files: tuple[Path, ...]) -> str:
    kind = file_kind(files[0])
    assert kind is not None
    other = next((path for path in files if file_kind(path) != kind), None)
    if other is not None:
        pair = (files[0], other) if kind == "image" else (other, files[0])
        raise DataError(f"{pair[0]} is an image and {pair[1]} a volume; use one kind only.")
    return kind
