"""Modalities in separate files: ``NAME_0000.nii.gz``, ``NAME_0001.nii.gz``, ... are the channels of one scan."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from steerformer.io.errors import DataError
from steerformer.io.formats import file_kind, split_suffix

_NUMBERED = re.compile(r"(.+)_(\d{4})")


def split_modality(stem: str) -> tuple[str, int] | None:
    """Case name and modality number of a stem like ``NAME_0001``; ``None`` for any other.

    >>> split_modality("brain_0001"), split_modality("brain")
    (('brain', 1), None)
    """
    match = _NUMBERED.fullmatch(stem)
    return (match[1], int(match[2])) if match else None


def match_modalities(images: Mapping[str, Path], cases: Collection[str]) -> dict[str, tuple[Path, ...]]:
    """The files of each case in a data set: one, or NAME_0000, NAME_0001, ... if ``cases`` has labels called NAME.

    Args:
        images: files by stem.
        cases: stems of the label maps.
    """
    numbered = {stem: found for stem in images if stem not in cases and (found := split_modality(stem))}
    if len(numbered) < len(images) or not any(name in cases for name, _ in numbered.values()):
        return {stem: (path,) for stem, path in images.items()}
    grouped: dict[str, dict[int, Path]] = {}
    for stem, (name, number) in numbered.items():
        grouped.setdefault(name, {})[number] = images[stem]
    expected = range(max(len(files) for files in grouped.values()))
    for files in grouped.values():
        if list(files) != list(expected):
            numbers = ", ".join(f"{number:04d}" for number in files)
            missing = ", ".join(f"{number:04d}" for number in expected if number not in files)
            raise DataError(
                f"{next(iter(files.values()))} has modalities {numbers}, but lacks {missing}: "
                f"every case needs the same ones, from 0000."
            )
    return {name: tuple(files.values()) for name, files in grouped.items()}


def group_modalities(files: Sequence[Path], channels: int) -> list[tuple[Path, ...]]:
    """The files of each scan to predict, in the given order; a file named twice counts once.

    A scan with several channels is one file with four axes, or NAME_0000, NAME_0001, ..., single-channel volumes in
    one folder with one suffix.

    >>> group_modalities([Path("a_0000.nii"), Path("a_0001.nii"), Path("b.nii")], 2)
    [(PosixPath('a_0000.nii'), PosixPath('a_0001.nii')), (PosixPath('b.nii'),)]
    """
    grouped: dict[tuple[str, ...], list[Path]] = {}
    for number, path in enumerate(dict.fromkeys(files)):
        stem, suffix = split_suffix(path.name)
        found = split_modality(stem) if channels > 1 and file_kind(path) == "volume" else None
        key: tuple[str, ...] = (str(path.parent), found[0], suffix) if found else (str(number),)
        grouped.setdefault(key, []).append(path)
    scans: list[tuple[Path, ...]] = []
    for key, paths in grouped.items():
        one = len(key) > 1 and _are_one_scan(paths, channels)
        scans += [tuple(sorted(paths))] if one else [(path,) for path in paths]
    return scans


def output_name(scan: Sequence[Path]) -> tuple[str, str]:
    """Stem of a scan's results, and the suffix of its label map: images become PNG files.

    >>> output_name([Path("a_0000.nii.gz"), Path("a_0001.nii.gz")]), output_name([Path("b.jpg")])
    (('a', '.nii.gz'), ('b', '.png'))
    """
    stem, suffix = split_suffix(scan[0].name)
    modality = split_modality(stem) if len(scan) > 1 else None
    return modality[0] if modality else stem, ".png" if file_kind(scan[0]) == "image" else suffix


def _are_one_scan(paths: Sequence[Path], channels: int) -> bool:
    """Whether the numbers are those of modalities, not of scans: from 0 to below the number of channels."""
    numbers = {found[1] for path in paths if (found := split_modality(split_suffix(path.name)[0]))}
    return 0 in numbers and max(numbers) < channels and not _has_four_axes(paths[0])


def _has_four_axes(path: Path) -> bool:
    import nibabel
    import numpy as np

    try:
        if path.name.lower().endswith(".npy"):
            return np.load(path, mmap_mode="r").ndim == 4
        return len(nibabel.load(path).shape) == 4  # type: ignore[attr-defined]
    except Exception:  # reading the file will report what is wrong with it
        return False
