"""From files with labels to sets to train, validate and test on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from steerformer.data import cache
from steerformer.data.base import DataError, Progress, Splits, shuffled
from steerformer.data.cases import Cases
from steerformer.data.config import CasesConfig
from steerformer.data.labels import read_labels
from steerformer.data.prepare import along, prepare
from steerformer.data.scans import read_scan
from steerformer.data.stored import Stored, tensors


@dataclass(frozen=True)
class Labeled:
    """A case as its files have it: ``x`` (channels, \\*space), ``labels`` (\\*space), and the size of its voxels."""

    x: Tensor
    labels: Tensor
    spacing: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """Where a case comes from: its name, its files, and how to read them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Labeled]


def read_pair(
    image: Path | Sequence[Path], mask: Path, classes: tuple[str, ...], channels: int | None, dim: int | None = None
) -> Labeled:
    """A scan and its labels out of files that lie in the same place."""
    scan = read_scan(image, channels, dim=dim)
    return Labeled(scan.x, read_labels(mask, scan, classes), scan.spacing)


def load_sources(
    sources: Sequence[Source], classes: tuple[str, ...], config: CasesConfig, progress: Progress, *, where: object
) -> Splits:
    """The cases of all sources, each prepared once and kept in the cache, and divided as ``config`` says."""
    train, validation, test = divide(len(sources), config, where)
    stored = []
    for number, source in enumerate(sources):
        progress("preparing cases", number, len(sources))
        stored.append(_stored(source, len(classes), config))
        _require_alike(stored[0], stored[-1], sources[0], source)
    progress("preparing cases", len(sources), len(sources))

    def part(numbers: Tensor, shape: tuple[int, ...] | None = None) -> Cases:
        return Cases([stored[number] for number in numbers.tolist()], numbers, config, shape=shape)

    shape = training_shape([stored[number].shape for number in train.tolist()], config)
    return Splits(part(train, shape), part(validation), part(test), classes)


def divide(count: int, config: CasesConfig, where: object) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the cases to train, validate and test on, each in ascending order, drawn by the seed.

    Test cases do not depend on how many are for the rest, nor validation cases on how many are to be trained on.
    """
    test, validation = (_number(part, count) for part in (config.test, config.validation))
    left = count - test - validation
    train = left if config.train is None else _number(config.train, count)
    if train > left or train < 1:
        asked = f"train={config.train}, " if config.train is not None else ""
        raise DataError(f"{where} has {count} cases, got {asked}validation={config.validation} and test={config.test}.")
    order = shuffled(count, config.seed, 6)
    sets = order[:train], order[left : left + validation], order[left + validation :]
    return sets[0].sort().values, sets[1].sort().values, sets[2].sort().values


def training_shape(shapes: Sequence[tuple[int, ...]], config: CasesConfig) -> tuple[int, ...]:
    """The one shape of all that is trained on: that of patches, or one that holds every case."""
    if config.patch is not None:
        return along(config.patch, len(shapes[0]), "patch")
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


def _number(part: int | float, count: int) -> int:
    """How many a number or a share is; a share above 0 is at least one."""
    return int(part) if part >= 1 or part == 0 else max(round(part * count), 1)


def _stored(source: Source, classes: int, config: CasesConfig) -> Stored:
    how = config.model_dump(mode="json", include={"channels", "normalize", "crop", "size", "spacing"})
    name = cache.fingerprint(list(source.files), case=source.name, classes=classes, version=2, **how)

    def make() -> cache.Tensors:
        case = source.read()
        ready = prepare(case.x, case.spacing, config)
        # what is normalized needs no more than half precision; what is not may be too large for it
        return tensors(ready, case.labels, classes, half=config.normalize != "none")

    return Stored.open(source.name, cache.kept(f"cases/{name}", make))


def _require_alike(first: Stored, other: Stored, first_source: Source, other_source: Source) -> None:
    """All cases go into one network."""
    if len(first.shape) != len(other.shape):
        raise DataError(f"{first_source.files[0]} and {other_source.files[0]} are an image and a volume; keep to one.")
    if first.channels != other.channels:
        raise DataError(
            f"{first_source.files[0]} has {first.channels} channels, but {other_source.files[0]} has "
            f"{other.channels}; set channels to the number that all should have."
        )


def names_of(classes: int) -> tuple[str, ...]:
    """Names for classes that have none."""
    return ("background", "foreground") if classes == 2 else ("background", *map(str, range(1, classes)))


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
