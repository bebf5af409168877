"""Single images and volumes, brought to one size; every way a file can be bad has its own line."""

from collections.abc import Sequence
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from steerformer.data.base import DataError
from steerformer.data.images import read_image
from steerformer.data.volumes import as_channels, read_volume

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")
VOLUMES = (".nii", ".nii.gz", ".npy")


def kind_of(path: Path) -> str | None:
    """``"image"``, ``"volume"``, or ``None`` for any other file, by its ending."""
    name = path.name.lower()
    if name.startswith("."):
        return None
    return "image" if name.endswith(IMAGES) else "volume" if name.endswith(VOLUMES) else None


def read_file(path: Path, *, size: int, channels: int, scale: str = "none") -> Tensor:
    """An image (channels, size, size) with values from 0 to 1, or a volume (channels, size, size, size).

    The longest side becomes ``size``, in millimeters where a NIfTI file says how large its voxels are; the rest is
    padded with zeros on both sides. ``scale="deviation"`` divides a volume by its standard deviation.
    """
    if require_kind(path) == "image":
        return fit(read_image(path, channels), size)
    array, geometry = read_volume(path)
    x = as_channels(array, channels, path)
    deviation = float(x.std()) if scale == "deviation" else 0.0
    return fit(x / deviation if deviation > 0 else x, size, geometry.spacing if geometry else None)


def require_kind(path: Path) -> str:
    """``"image"`` or ``"volume"``; a :class:`DataError` if the file is neither, or not there."""
    kind = kind_of(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files in it, such as {path}/*.nii.gz.")
    if kind is None:
        raise DataError(f"{path} is neither an image ({', '.join(IMAGES)}) nor a volume ({', '.join(VOLUMES)}).")
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    return kind


def fit(x: Tensor, size: int, spacing: tuple[float, ...] | None = None) -> Tensor:
    """(channels, \\*space) resampled so that its longest side is ``size`` and padded with zeros to a square or cube."""
    extent = [n * step for n, step in zip(x.shape[1:], spacing or (1.0,) * (x.ndim - 1), strict=True)]
    shape = [max(1, round(size * length / max(extent))) for length in extent]
    x = resample(x, shape)
    pads = [((size - n) // 2, size - n - (size - n) // 2) for n in shape]
    return F.pad(x, [side for pair in reversed(pads) for side in pair])


def resample(x: Tensor, shape: Sequence[int]) -> Tensor:
    """(channels, \\*space) with the same extent in other numbers of voxels: fewer by averaging, more linearly."""
    shrunk = [min(new, old) for new, old in zip(shape, x.shape[1:], strict=True)]
    if shrunk != list(x.shape[1:]):
        x = F.interpolate(x[None], shrunk, mode="area")[0]
    if list(shape) != shrunk:
        x = F.interpolate(x[None], list(shape), mode="bilinear" if x.ndim == 3 else "trilinear", align_corners=False)[0]
    return x
