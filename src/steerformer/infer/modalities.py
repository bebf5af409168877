"""Which files belong to one scan: its modalities may lie in files of their own."""

import re
from collections.abc import Sequence
from pathlib import Path

from steerformer.data.files import kind_of

_NUMBERED = re.compile(r"(.+)_(\d{4})(\.nii|\.nii\.gz|\.npy)", re.IGNORECASE)


def scans_of(files: Sequence[Path], channels: int) -> list[tuple[Path, ...]]:
    """The files of each scan, in the order in which they come; one that is named twice counts once.

    A scan of several channels is one file with four axes, or NAME_0000, NAME_0001 and so on, volumes of one channel
    each, in one folder and of one ending.

    >>> scans_of([Path("a_0000.nii"), Path("a_0001.nii"), Path("b.nii")], 2)
    [(PosixPath('a_0000.nii'), PosixPath('a_0001.nii')), (PosixPath('b.nii'),)]
    """
    found: dict[tuple[str, ...], list[Path]] = {}
    for number, path in enumerate(dict.fromkeys(files)):
        match = _NUMBERED.fullmatch(path.name) if channels > 1 else None
        key: tuple[str, ...] = (str(path.parent), match[1], match[3]) if match else (str(number),)
        found.setdefault(key, []).append(path)
    scans: list[tuple[Path, ...]] = []
    for key, paths in found.items():
        scans += [tuple(sorted(paths))] if len(key) > 1 and _is_one(paths, channels) else [(path,) for path in paths]
    return scans


def name_of(scan: Sequence[Path]) -> tuple[str, str]:
    """What a scan's results are called, and the ending of its label map: images become PNG files.

    >>> name_of([Path("a_0000.nii.gz"), Path("a_0001.nii.gz")]), name_of([Path("b.jpg")])
    (('a', '.nii.gz'), ('b', '.png'))
    """
    name = scan[0].name
    ending = name[-len(".nii.gz") :] if name.lower().endswith(".nii.gz") else scan[0].suffix
    stem = name.removesuffix(ending)
    if len(scan) > 1:
        stem = stem[: -len("_0000")]
    return stem, ".png" if kind_of(scan[0]) == "image" else ending


def _is_one(paths: Sequence[Path], channels: int) -> bool:
    """Whether numbers in names are those of modalities, not of scans: from 0 to below the number of channels."""
    matches = [_NUMBERED.fullmatch(path.name) for path in paths]
    numbers = {int(match[2]) for match in matches if match}
    return 0 in numbers and max(numbers) < channels and not _has_four_axes(paths[0])


def _has_four_axes(path: Path) -> bool:
    import nibabel
    import numpy as np

    try:
        if path.name.lower().endswith(".npy"):
            return np.load(path, mmap_mode="r").ndim == 4
        return len(nibabel.load(path).shape) == 4  # type: ignore[attr-defined]
    except Exception:  # whoever reads it will say what is wrong
        return False
