"""PH2, as its archive is laid out or as arrays."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from steerformer.data.archive import names_in, read_npz
from steerformer.data.base import DataError, Progress, Splits, ignore
from steerformer.data.config import PH2Config
from steerformer.data.images import in_channels
from steerformer.data.labels import checked_labels
from steerformer.data.sources import Labeled, Source, load_sources, read_pair

CLASSES = ("background", "lesion")
SOURCE = "PH2: https://www.fc.up.pt/addi/ph2%20database.html (unpack the archive)"


@dataclass(frozen=True)
class Photographs:
    """Where the photographs come from."""

    sources: tuple[Source, ...]
    where: Path

    def describe(self) -> str:
        """In a few words."""
        return f"{len(self.sources)} photographs, the first {self.sources[0].name}, in {self.where}"


def load(config: PH2Config, progress: Progress = ignore) -> Splits:
    """Photographs to train, validate and test on."""
    found = find(config)
    return load_sources(found.sources, CLASSES, config, progress, where=found.where)


def find(config: PH2Config) -> Photographs:
    """The photographs below ``root``; a :class:`DataError` that says what is missing."""
    root = config.root
    if root is None:
        raise DataError(f"ph2 needs a root, the folder or .npz file that holds it; get {SOURCE}.")
    if not root.exists():
        raise DataError(f"there is no folder {root}; get {SOURCE}.")
    if root.is_file():
        return _of_arrays(root, config)
    for place in (root, root / "PH2 Dataset images"):
        if cases := _folders(place):
            return Photographs(tuple(_of_folder(case, config) for case in cases), place)
    archives = sorted(root.glob("*.npz"))
    if len(archives) > 1:
        raise DataError(f"{root} holds several .npz files ({archives[0].name}, {archives[1].name}, ...); name one.")
    if archives:
        return _of_arrays(archives[0], config)
    deeper = sorted(root.rglob("PH2 Dataset images"))
    if not deeper or not _folders(deeper[0]):
        raise DataError(f"{root} holds no PH2: neither 'PH2 Dataset images' with folders IMD... nor an .npz file.")
    return Photographs(tuple(_of_folder(case, config) for case in _folders(deeper[0])), deeper[0])


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("IMD*") if path.is_dir())


def _of_folder(case: Path, config: PH2Config) -> Source:
    image = case / f"{case.name}_Dermoscopic_Image" / f"{case.name}.bmp"
    mask = case / f"{case.name}_lesion" / f"{case.name}_lesion.bmp"
    for path in (image, mask):
        if not path.is_file():
            raise DataError(f"there is no file {path}; unpack the archive again.")
    return Source(case.name, (image, mask), partial(read_pair, image, mask, CLASSES, config.channels, 2))


def _of_arrays(path: Path, config: PH2Config) -> Photographs:
    """``images`` (number, height, width, 3) of bytes, ``masks`` of the same size or with 8 pixels a byte."""
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
        raise DataError(f"{path} has masks of {masks.dtype}, expected whole numbers.")
    names = _names(path, len(images))
    sources = (
        Source(name, (path,), partial(_labeled, image, mask, config.channels, path, name))
        for name, image, mask in zip(names, images, masks, strict=True)
    )
    return Photographs(tuple(sources), path)


def _names(path: Path, count: int) -> list[str]:
    if "ids" not in names_in(path):
        return [f"{number:03d}" for number in range(count)]
    names = [str(name) for name in read_npz(path, ("ids",))["ids"].ravel()]
    if len(names) != count or len(set(names)) != count:
        raise DataError(f"{path} has {len(set(names))} different ids for {count} images.")
    return names


def _labeled(image: np.ndarray, mask: np.ndarray, channels: int | None, path: Path, name: str) -> Labeled:
    x = in_channels(torch.from_numpy(image.astype(np.float32) / 255).movedim(2, 0), "RGB", channels, path)
    return Labeled(x, torch.from_numpy(checked_labels(mask, f"{path} ({name})", CLASSES)), (1.0, 1.0))
