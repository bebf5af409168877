"""PH2: dermoscopic photographs with lesion masks, from the archive or from an .npz file."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from steerformer.data.cases import CaseFiles, load_cases, read_labeled_scan
from steerformer.data.config import PH2Config
from steerformer.data.dataset import Progress, Splits, no_progress
from steerformer.io.archives import array_names, find_npz, read_npz
from steerformer.io.errors import DataError
from steerformer.io.images import convert_channels
from steerformer.io.labels import validate_labels
from steerformer.io.scans import Scan

CLASSES = ("background", "lesion")
SOURCE = "PH2: https://www.fc.up.pt/addi/ph2%20database.html (unpack the archive)"


@dataclass(frozen=True)
class Photographs:
    """Cases found in the archive."""

    cases: tuple[CaseFiles, ...]
    where: Path

    def describe(self) -> str:
        """One line for users."""
        return f"{len(self.cases)} photographs, the first {self.cases[0].name}, in {self.where}"


def load(config: PH2Config, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets."""
    found = find(config)
    return load_cases(found.cases, CLASSES, config, progress, where=found.where)


def find(config: PH2Config) -> Photographs:
    """The photographs below ``root``; a :class:`DataError` that says what is missing."""
    root = config.root
    if root is None:
        raise DataError(f"ph2 needs a root, the folder or .npz file that holds it; get {SOURCE}.")
    if not root.exists():
        raise DataError(f"there is no folder {root}; get {SOURCE}.")
    if root.is_file():
        return _from_arrays(root, config)
    for place in (root, root / "PH2 Dataset images"):
        if cases := _folders(place):
            return Photographs(tuple(_from_folder(case, config) for case in cases), place)
    archive = find_npz(root, recursive=False)
    if archive is not None:
        return _from_arrays(archive, config)
    deeper = sorted(root.rglob("PH2 Dataset images"))
    if not deeper or not _folders(deeper[0]):
        raise DataError(f"{root} does not hold PH2: neither 'PH2 Dataset images' with folders IMD... nor an .npz file.")
    return Photographs(tuple(_from_folder(case, config) for case in _folders(deeper[0])), deeper[0])


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("IMD*") if path.is_dir())


def _from_folder(case: Path, config: PH2Config) -> CaseFiles:
    image = case / f"{case.name}_Dermoscopic_Image" / f"{case.name}.bmp"
    mask = case / f"{case.name}_lesion" / f"{case.name}_lesion.bmp"
    for path in (image, mask):
        if not path.is_file():
            raise DataError(f"there is no file {path}; unpack the archive again.")
    read = partial(read_labeled_scan, image, mask, CLASSES, config.channels, 2)
    return CaseFiles(case.name, (image, mask), read)


def _from_arrays(path: Path, config: PH2Config) -> Photographs:
    """``images`` (number, height, width, 3) of bytes, ``masks`` of the same size or with 8 pixels per byte."""
    arrays = read_npz(path, ("images", "masks"))
    images, masks = arrays["images"], arrays["masks"]
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8 or not images.size:
        raise DataError(
            f"{path} has images of shape {images.shape} and {images.dtype}, expected (n, h, w, 3) of bytes."
        )
    if masks.shape == (*images.shape[:2], (images.shape[2] + 7) // 8) and masks.dtype == np.uint8:
        masks = np.unpackbits(masks, axis=2, count=images.shape[2])
    if masks.shape != images.shape[:3]:
        raise DataError(f"{path} has masks of shape {masks.shape}, but images of shape {images.shape}.")
    if masks.dtype.kind not in "bui":
        raise DataError(f"{path} has masks of {masks.dtype}, expected integers.")
    names = _names(path, len(images))
    cases = (
        CaseFiles(name, (path,), partial(_read, image, mask, config.channels, path, name))
        for name, image, mask in zip(names, images, masks, strict=True)
    )
    return Photographs(tuple(cases), path)


def _names(path: Path, count: int) -> list[str]:
    if "ids" not in array_names(path):
        return [f"{number:03d}" for number in range(count)]
    names = [str(name) for name in read_npz(path, ("ids",))["ids"].ravel()]
    if len(names) != count or len(set(names)) != count:
        raise DataError(f"{path} has {len(set(names))} different ids for {count} images.")
    return names


def _read(image: np.ndarray, mask: np.ndarray, channels: int | None, path: Path, name: str) -> Scan:
    x = convert_channels(torch.from_numpy(image.astype(np.float32) / 255).movedim(2, 0), "RGB", channels, path)
    labels = torch.from_numpy(validate_labels(mask, f"{path} ({name})", CLASSES))
    return Scan(x, (1.0, 1.0), path, "image", labels=labels)
