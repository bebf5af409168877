"""Scans to segment, and label maps that lie where the scans lie: NIfTI in, NIfTI out, images in, PNG out."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError
from steerformer.data.files import VOLUMES, require_kind
from steerformer.data.images import read_image
from steerformer.data.volumes import Geometry, as_channels, distance, read_volume
from steerformer.files import write_whole

Array = np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class Scan:
    """An image or a volume (channels, \\*space), and where it comes from.

    The axes of NIfTI volumes are turned to right, front and up, so that all scans are of one handedness;
    :meth:`restore` turns back. Images stand as they are shown: a camera's note that it was held sideways is heeded.
    """

    x: Tensor
    spacing: tuple[float, ...]
    path: Path
    kind: str
    geometry: Geometry | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels or voxels along each axis of ``x``."""
        return tuple(self.x.shape[1:])

    def restore(self, labels: Array) -> np.ndarray:
        """Numbers on the grid of ``x`` in the axes of the file; axes after those of space stay where they are."""
        array = np.asarray(labels)
        if array.shape[: len(self.shape)] != self.shape:
            raise ValueError(f"{self.path} was read with shape {self.shape}, got labels of shape {array.shape}.")
        return array if self.geometry is None else self.geometry.from_canonical(array)


def read_scan(path: Path | Sequence[Path], channels: int | None = None, *, dim: int | None = None) -> Scan:
    """An image (PNG, JPEG, BMP, ...) or a volume (NIfTI, .npy) as it is, or a line that says why it cannot be used.

    Args:
        path: a file; or the files of the modalities of one volume, each of one channel.
        channels: how many are expected; ``None`` for any. Volumes have several on a fourth axis.
        dim: 2 if an image is expected, 3 if a volume is.
    """
    if isinstance(path, Path):
        return _read(path, channels, dim)
    if channels is not None and len(path) != channels:
        names = ", ".join(file.name for file in path)
        raise DataError(f"{path[0]} has {len(path)} modalities ({names}), expected {channels}.")
    scans = [_read(file, 1, dim) for file in path]
    first = scans[0]
    arrays = [lay_over(first, scan.x[0].numpy(), scan.geometry, scan.path) for scan in scans]
    x = torch.stack([torch.from_numpy(array.copy()) for array in arrays])
    return Scan(x, first.spacing, first.path, first.kind, first.geometry)


def lay_over(scan: Scan, array: np.ndarray, geometry: Geometry | None, path: Path) -> np.ndarray:
    """An array (\\*space, ...) out of another file, on the grid of ``scan``.

    A :class:`DataError` unless it has the shape of the scan and lies in the same place to half a voxel, or neither
    file tells where it lies.
    """
    if (geometry is None) != (scan.geometry is None):
        # one was turned to right, front and up, and nobody knows how to turn the other
        raise DataError(f"{path} and {scan.path} cannot be laid over each other: one is NIfTI and one is not.")
    if geometry is not None and scan.geometry is not None:
        apart = distance(geometry.affine, scan.geometry.affine, scan.geometry.shape)
        if geometry.shape == scan.geometry.shape and apart <= min(scan.spacing) / 2:
            return scan.geometry.to_canonical(geometry.from_canonical(array))  # oblique axes may round to others
    if array.shape[: len(scan.shape)] != scan.shape:
        raise DataError(f"{path} has shape {array.shape}, but {scan.path} has {scan.shape}.")
    if geometry is not None and scan.geometry is not None:
        apart = distance(geometry.canonical_affine, scan.geometry.canonical_affine, scan.shape)
        if apart > min(scan.spacing) / 2:
            raise DataError(f"{path} lies {apart:.1f} mm away from {scan.path}: their headers tell of two places.")
    return array


def write_labels(scan: Scan, labels: Array, path: Path, *, classes: int | None = None) -> None:
    """Labels (\\*space) on the grid of the scan, as a file in the very geometry of the scan's own file.

    A NIfTI file has the shape, affine, orientation and header of the scan's (three axes also for four). An image
    becomes a PNG of label numbers, or of 0 and 255 where ``classes`` is 2.
    """
    array = np.asarray(labels)
    if array.shape != scan.shape:
        raise ValueError(f"{scan.path} was read with shape {scan.shape}, got labels of shape {array.shape}.")
    least, most = int(array.min()), int(array.max())
    if least < 0 or most > np.iinfo(np.int16).max:
        raise ValueError(f"labels are 0 to {np.iinfo(np.int16).max}, got {least} to {most}.")
    array = array.astype(np.uint8 if most <= 255 else np.int16)
    if scan.kind == "image":
        _require_ending(path, (".png",))
        write_whole(path, _png(array * 255 if classes == 2 else array))
    else:
        _write_volume(scan, array, path)


def write_probabilities(scan: Scan, probabilities: Array, path: Path) -> None:
    """Probabilities (class, \\*space) in float32, classes on the last axis: four axes of NIfTI, or an .npy file."""
    array = np.moveaxis(np.asarray(probabilities, dtype=np.float32), 0, -1)
    if array.shape[:-1] != scan.shape:
        raise ValueError(f"{scan.path} was read with shape {scan.shape}, got probabilities of {array.shape[:-1]}.")
    if scan.kind == "image":
        _require_ending(path, (".npy",))
        write_whole(path, _npy(array))
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
        _require_ending(path, (".npy",))
        write_whole(path, _npy(array))
        return
    _require_ending(path, VOLUMES[:2])
    data = scan.geometry.image(array).to_bytes()
    # without the time of writing, so that the same labels are the same file
    write_whole(path, gzip.compress(data, compresslevel=4, mtime=0) if path.name.lower().endswith(".gz") else data)


def _require_ending(path: Path, endings: tuple[str, ...]) -> None:
    if not path.name.lower().endswith(endings):
        raise ValueError(f"{path} should end in {' or '.join(endings)}, like what it is made from.")


def _npy(array: np.ndarray) -> bytes:
    written = BytesIO()
    np.save(written, np.ascontiguousarray(array))
    return written.getvalue()


def _png(array: np.ndarray) -> bytes:
    from PIL import Image

    written = BytesIO()
    Image.fromarray(array if array.dtype == np.uint8 else array.astype(np.uint16)).save(written, format="PNG")
    return written.getvalue()
