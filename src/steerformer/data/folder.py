"""A folder of one's own: one sub-folder a class, with images or with volumes."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from steerformer.data import cache
from steerformer.data.base import DataError, Progress, Samples, Splits, hold_out, ignore, shuffled
from steerformer.data.config import FolderConfig
from steerformer.data.files import IMAGES, VOLUMES, kind_of, read_file

_CHUNK = 64


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
    how = {"size": config.size, "channels": config.channels, "scale": config.scale}
    name = f"folder-{cache.fingerprint(list(listing.files), version=1, **how)}"
    stored = torch.float16 if listing.kind == "image" else torch.float32  # 0 to 1 needs no more

    def read(start: int, stop: int) -> dict[str, Tensor]:
        chosen = listing.files[start:stop]
        read_one = [read_file(path, size=config.size, channels=config.channels, scale=config.scale) for path in chosen]
        return {"x": torch.stack(read_one).to(stored)}

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
    by_split: dict[str | None, Path] = {None: root}
    if _folders(root / "train"):
        by_split = {split: root / split for split in ("train", "validation", "test") if (root / split).is_dir()}
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


def divide(listing: Listing, config: FolderConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the files to train, validate and test on: by their folders if there are such, else by the seed."""
    numbers = torch.arange(len(listing.files))
    own = {split: torch.tensor([found == split for found in listing.splits]) for split in ("validation", "test")}
    apart = own["validation"] | own["test"]
    test = numbers[own["test"]]
    if not own["test"].any():
        test = _drawn(listing, numbers[~apart], config)
        apart[test] = True
    rest = numbers[~apart]
    if own["validation"].any():
        return rest, numbers[own["validation"]], test
    kept, held = hold_out(len(rest), config.validation, seed=config.seed, where=config.root)
    return rest[kept], rest[held], test


def _drawn(listing: Listing, numbers: Tensor, config: FolderConfig) -> Tensor:
    """The part of each class to test on, at least one file of it, and never all."""
    labels = torch.tensor(listing.labels)
    drawn = [numbers[:0]]
    for label in range(len(listing.classes)):
        members = numbers[labels[numbers] == label]
        count = min(max(round(config.test * len(members)), 1), len(members) - 1) if config.test else 0
        drawn.append(members[shuffled(len(members), config.seed, 4, label)[:count]])
    return torch.cat(drawn).sort().values


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
