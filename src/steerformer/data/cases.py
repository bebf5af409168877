"""From the files of labeled cases to data sets: read, preprocess, cache, split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from steerformer.data import cache
from steerformer.data.cached_case import CachedCase, cached_tensors
from steerformer.data.config import SegmentationDataConfig
from steerformer.data.dataset import Progress, Splits
from steerformer.data.preprocessing import for_each_axis, preprocess
from steerformer.data.seeding import shuffled
from steerformer.data.segmentation_dataset import SegmentationDataset
from steerformer.io.errors import DataError
from steerformer.io.labels import read_labels
from steerformer.io.scans import Scan, read_scan


@dataclass(frozen=True)
class CaseFiles:
    """The files of one case: its name, the files, and a function that reads them as a scan with labels."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Scan]


def read_labeled_scan(
    image: Path | Sequence[Path], mask: Path, classes: tuple[str, ...], channels: int | None, dim: int | None = None
) -> Scan:
    """A scan with its labels, from files with the same geometry."""
    scan = read_scan(image, channels, dim=dim)
    return replace(scan, labels=read_labels(mask, scan, classes))


def load_cases(
    cases: Sequence[CaseFiles],
    classes: tuple[str, ...],
    config: SegmentationDataConfig,
    progress: Progress,
    *,
    where: object,
) -> Splits:
    """Training, validation and test sets of all cases; each case is preprocessed once and cached."""
    train, validation, test = split_cases(len(cases), config, where)
    cached: list[CachedCase] = []
    for number, case in enumerate(cases):
        progress("preprocessing cases", number, len(cases))
        cached.append(_load_case(case, len(classes), config))
        _require_same_input(cached[0], cached[-1], cases[0], case)
    progress("preprocessing cases", len(cases), len(cases))

    def dataset(numbers: Tensor, shape: tuple[int, ...] | None = None) -> SegmentationDataset:
        return SegmentationDataset([cached[number] for number in numbers.tolist()], numbers, config, shape=shape)

    shape = training_shape([cached[number].shape for number in train.tolist()], config)
    return Splits(dataset(train, shape), dataset(validation), dataset(test), classes)


def _load_case(case: CaseFiles, classes: int, config: SegmentationDataConfig) -> CachedCase:
    """Read, preprocess and cache one case, unless the cache has it."""
    options = config.model_dump(mode="json", include={"channels", "normalize", "crop", "size", "spacing"})
    name = cache.fingerprint(list(case.files), case=case.name, classes=classes, version=4, **options)

    def make() -> cache.Tensors:
        scan = case.read()
        assert scan.labels is not None
        ready = preprocess(scan.x, scan.spacing, config)
        labels, present = ready.labels(scan.labels), scan.labels.unique().long()
        half = config.normalize != "none"  # other values may be too large for half precision
        return cached_tensors(ready.x, labels, ready.spacing, present, classes, half=half)

    return CachedCase.open(case.name, cache.cached_file(f"cases/{name}", make))


def split_cases(count: int, config: SegmentationDataConfig, where: object) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the training, validation and test cases, each in ascending order, drawn with the seed.

    Test cases do not depend on the size of the other sets, nor validation cases on the size of the training set.
    """
    if config.train == 0:
        raise DataError(f"{where}: train=0 leaves no training cases; set train=null for all that remain.")
    test, validation = (_number(part, count) for part in (config.test, config.validation))
    left = count - test - validation
    train = left if config.train is None else _number(config.train, count)
    if train > left or train < 1:
        given = f"train={config.train}, " if config.train is not None else ""
        raise DataError(
            f"{where} has {count} cases, too few for {given}validation={config.validation} and test={config.test}; "
            "lower them."
        )
    order = shuffled(count, config.seed, 6)
    if config.subset_seed:
        order[:left] = order[:left][shuffled(left, config.subset_seed, 7)]
    sets = order[:train], order[left : left + validation], order[left + validation :]
    return sets[0].sort().values, sets[1].sort().values, sets[2].sort().values


def training_shape(shapes: Sequence[tuple[int, ...]], config: SegmentationDataConfig) -> tuple[int, ...]:
    """The common shape of all training samples: the patch size, or the smallest shape that holds every case."""
    if config.patch_size is not None:
        return for_each_axis(config.patch_size, len(shapes[0]), "patch_size")
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


def class_names(classes: int) -> tuple[str, ...]:
    """Default names of classes."""
    return ("background", "foreground") if classes == 2 else ("background", *map(str, range(1, classes)))


def shorten(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _number(part: int | float, count: int) -> int:
    """The count that a number or a fraction stands for; a fraction above 0 is at least one case."""
    return int(part) if part >= 1 or part == 0 else max(round(part * count), 1)


def _require_same_input(first: CachedCase, other: CachedCase, first_files: CaseFiles, other_files: CaseFiles) -> None:
    """All cases are inputs of one network."""
    if len(first.shape) != len(other.shape):
        raise DataError(
            f"{first_files.files[0]} and {other_files.files[0]} are an image and a volume; use one kind only."
        )
    if first.channels != other.channels:
        raise DataError(
            f"{first_files.files[0]} has {first.channels} channels, but {other_files.files[0]} has "
            f"{other.channels}; set channels to the number that all should have."
        )
