"""Single images and volumes, brought to one size; every way a file can be bad has its own line."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.base import DataError
from steerformer.data.images import read_image

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

    The longest side becomes ``size``, in millimetres where a NIfTI file says how large its voxels are; the rest is
    padded with zeros on both sides. ``scale="deviation"`` divides a volume by its standard deviation.
    """
    kind = kind_of(path)
    if kind is None:
        raise DataError(f"{path} is neither an image ({', '.join(IMAGES)}) nor a volume ({', '.join(VOLUMES)}).")
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    if kind == "image":
        return fit(read_image(path, channels), size)
    array, spacing = _read_npy(path) if path.name.lower().endswith(".npy") else _read_nifti(path)
    x = _checked(array, channels, path)
    deviation = float(x.std()) if scale == "deviation" else 0.0
    return fit(x / deviation if deviation > 0 else x, size, spacing)


def fit(x: Tensor, size: int, spacing: tuple[float, ...] | None = None) -> Tensor:
    """(channels, \\*space) resampled so that its longest side is ``size``, then padded with zeros to a square or cube.

    Where it becomes smaller it is averaged, where it becomes larger interpolated linearly.
    """
    extent = [n * step for n, step in zip(x.shape[1:], spacing or (1.0,) * (x.ndim - 1), strict=True)]
    shape = [max(1, round(size * length / max(extent))) for length in extent]
    shrunk = [min(new, old) for new, old in zip(shape, x.shape[1:], strict=True)]
    if shrunk != list(x.shape[1:]):
        x = F.interpolate(x[None], shrunk, mode="area")[0]
    if shape != shrunk:
        x = F.interpolate(x[None], shape, mode="bilinear" if x.ndim == 3 else "trilinear", align_corners=False)[0]
    pads = [((size - n) // 2, size - n - (size - n) // 2) for n in shape]
    return F.pad(x, [side for pair in reversed(pads) for side in pair])


def _read_npy(path: Path) -> tuple[np.ndarray, None]:
    with _explained(path, ".npy"):
        return np.load(path, allow_pickle=False), None


def _read_nifti(path: Path) -> tuple[np.ndarray, tuple[float, ...]]:
    """Voxels, axes turned to right, front and up as far as the header tells, and their size in millimetres."""
    import nibabel

    with _explained(path, "NIfTI"):
        image = nibabel.as_closest_canonical(nibabel.load(path))
        array = np.asarray(image.dataobj)
        spacing = tuple(float(step) for step in image.header.get_zooms()[:3])
    usable = len(spacing) == 3 and all(np.isfinite(step) and step > 0 for step in spacing)
    return array, spacing if usable else (1.0, 1.0, 1.0)


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Whatever goes wrong is one line that names the file: a damaged header can end in any kind of error."""
    logger = logging.getLogger("nibabel.global")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PermissionError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except Exception:
        raise DataError(f"{path} cannot be read as {kind}: it is cut short, damaged or of another kind.") from None
    finally:
        logger.disabled = before


def _checked(array: np.ndarray, channels: int, path: Path) -> Tensor:
    if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating) or array.dtype == bool):
        raise DataError(f"{path} holds {array.dtype}, expected real numbers.")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        shape = tuple(array.shape[:3] if array.ndim == 4 else array.shape)
        raise DataError(f"{path} has shape {shape}, expected three axes of space, and channels on a fourth.")
    if array.shape[3] != channels:
        raise DataError(f"{path} has {array.shape[3]} channels (shape {tuple(array.shape)}), expected {channels}.")
    with np.errstate(all="ignore"):  # what is too large becomes infinity, and is named
        x = torch.from_numpy(array.astype(np.float32)).movedim(3, 0)
    if not x.isfinite().all():
        raise DataError(f"{path} holds NaN or infinity.")
    return x.contiguous()
