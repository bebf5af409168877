"""Scans: an image or volume with its geometry, read from files, and label maps written in that geometry."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steerformer.io.atomic import write_atomic
from steerformer.io.errors import DataError
from steerformer.io.formats import NIFTI_SUFFIXES, require_kind
from steerformer.io.images import read_image
from steerformer.io.nifti import Geometry, align, as_channels, read_volume

Array = np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class Scan:
    """An image or volume (channels, \\*space), its voxel spacing and, if known, its labels and geometry.

    NIfTI volumes are in RAS+ orientation, so that all scans have the same handedness; :meth:`to_file_axes` goes back.
    Images have the EXIF orientation applied.

    Args:
        x: the values.
        spacing: voxel spacing along each axis, in millimeters where the file states it, else 1.
        path: the file it was read from, or the name of the case.
        kind: ``"image"`` or ``"volume"``.
        geometry: affine and header of a NIfTI file.
        labels: the class of every voxel (\\*space).
    """

    x: Tensor
    spacing: tuple[float, ...]
    path: Path
    kind: str
    geometry: Geometry | None = None
    labels: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels or voxels along each axis of ``x``."""
        return tuple(self.x.shape[1:])

    @property
    def name(self) -> str:
        """Name of the case or file."""
        return self.path.name

    def to_file_axes(self, array: Array) -> np.ndarray:
        """Reorient an array on the grid of ``x`` to the axes of the file; axes after the spatial ones stay."""
        array = np.asarray(array)
        if array.shape[: len(self.shape)] != self.shape:
            raise ValueError(f"{self.path} was read with shape {self.shape}, got labels of shape {array.shape}.")
        return array if self.geometry is None else self.geometry.from_canonical(array)


def read_scan(path: Path | Sequence[Path], channels: int | None = None, *, dim: int | None = None) -> Scan:
    """Read an image (PNG, JPEG, BMP, ...) or a volume (NIfTI, .npy); a :class:`DataError` if it cannot be used.

    Args:
        path: one file; or one single-channel file per modality.
        channels: expected number; ``None`` for any. Volumes store several on a fourth axis.
        dim: 2 if an image is expected, 3 if a volume is.
    """
    if isinstance(path, Path):
        return _read(path, channels, dim)
    if channels is not None and len(path) != channels:
        names = ", ".join(file.name for file in path)
        raise DataError(f"{path[0]} has {len(path)} modalities ({names}), expected {channels}.")
    scans = [_read(file, 1, dim) for file in path]
    first = scans[0]
    grid: dict[str, Any] = {"to": first.geometry, "shape": first.shape, "other": first.path}
    arrays = [align(scan.x[0].numpy(), scan.geometry, scan.path, **grid) for scan in scans]
    x = torch.stack([torch.from_numpy(array.copy()) for array in arrays])
    return Scan(x, first.spacing, first.path, first.kind, first.geometry)


def write_labels(scan: Scan, labels: Array, path: Path, *, classes: int | None = None) -> None:
    """Write labels (\\*space) on the grid of the scan in the geometry of the scan's file.

    A NIfTI file gets the scan's shape, affine, orientation and header (three axes even for a scan with four). An
    image becomes a PNG of class numbers, or of 0 and 255 if ``classes`` is 2.
    """
    array = np.asarray(labels)
    if array.shape != scan.shape:
        raise ValueError(f"{scan.path} was read with shape {scan.shape}, got labels of shape {array.shape}.")
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest > np.iinfo(np.int16).max:
        raise ValueError(f"labels are 0 to {np.iinfo(np.int16).max}, got {lowest} to {highest}.")
    array = array.astype(np.uint8 if highest <= 255 else np.int16)
    if scan.kind == "image":
        _require_suffix(path, (".png",))
        write_atomic(path, _png(array * 255 if classes == 2 else array))
    else:
        _write_volume(scan, array, path)


def write_probabilities(scan: Scan, probabilities: Array, path: Path) -> None:
    """Write probabilities (class, \\*space) in float32, classes on the last axis: 4D NIfTI or .npy."""
    array = np.moveaxis(np.asarray(probabilities, dtype=np.float32), 0, -1)
    if array.shape[:-1] != scan.shape:
        raise ValueError(f"{scan.path} was read with shape {scan.shape}, got probabilities of {array.shape[:-1]}.")
    if scan.kind == "image":
        _require_suffix(path, (".npy",))
        write_atomic(path, _npy(array))
    else:
        _write_volume(scan, array, path)


def _read(path: Path, channels: int | None, dim: int | None) -> Scan:
    kind = require_kind(path)
    if dim is not None and (kind == "image") != (dim == 2):
        raise DataError(f"{path} is {'an image, expected a volume' if dim == 3 else 'a volume, expected an image'}.")
    if kind == "image":
        return Scan(read_image(path, channels), (1.0, 1.0), path, kind)
    array, geometry = read_volume(path)
    if array.ndim == 2 or (array.ndim in (3, 4) and 1 in array.shape[:3]):
        raise DataError(f"{path} is a single slice (shape {tuple(array.shape)}), expected a volume.")
    x = as_channels(array, channels, path)
    return Scan(x, geometry.spacing if geometry else (1.0, 1.0, 1.0), path, kind, geometry)


def _write_volume(scan: Scan, array: np.ndarray, path: Path) -> None:
    if scan.geometry is None:
        _require_suffix(path, (".npy",))
        write_atomic(path, _npy(array))
        return
    _require_suffix(path, NIFTI_SUFFIXES)
    data = scan.geometry.image(array).to_bytes()
    # without a timestamp, so that equal labels give equal files
    write_atomic(path, gzip.compress(data, compresslevel=4, mtime=0) if path.name.lower().endswith(".gz") else data)


def _require_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    if not path.name.lower().endswith(suffixes):
        raise ValueError(f"{path} should end in {' or '.join(suffixes)}, like the file it is made from.")


def _npy(array: np.ndarray) -> bytes:
    written = BytesIO()
    np.save(written, np.ascontiguousarray(array))
    return written.getvalue()


def _png(array: np.ndarray) -> bytes:
    from PIL import Image

    written = BytesIO()
    Image.fromarray(array if array.dtype == np.uint8 else array.astype(np.uint16)).save(written, format="PNG")
    return written.getvalue()
