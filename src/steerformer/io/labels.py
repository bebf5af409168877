"""Label maps: one class number for every pixel or voxel."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.io.errors import DataError
from steerformer.io.formats import require_kind
from steerformer.io.images import read_label_image
from steerformer.io.nifti import align, read_volume
from steerformer.io.scans import Scan

_SHOWN = 6


def read_labels(path: Path, scan: Scan, classes: tuple[str, ...]) -> Tensor:
    """The labels (\\*space) of ``scan`` in the file ``path``, on the scan's grid, from 0 to the number of classes - 1.

    With two classes, 0 and 255 stand for 0 and 1.
    """
    if require_kind(path) != scan.kind:
        raise DataError(f"{path} cannot hold the labels of {scan.path}: one is an image, the other a volume.")
    if scan.kind == "image":
        array, geometry = read_label_image(path), None
    else:
        array, geometry = read_volume(path)
        if array.ndim == 4 and array.shape[3] == 1:
            array = array[..., 0]
        if array.ndim != 3:
            raise DataError(f"{path} has shape {array.shape}, expected labels on three axes.")
    array = align(array, geometry, path, to=scan.geometry, shape=tuple(scan.x.shape[1:]), other=scan.path)
    return torch.from_numpy(validate_labels(array, path, classes))


def validate_labels(array: np.ndarray, path: object, classes: tuple[str, ...]) -> np.ndarray:
    """Class numbers as integers; a :class:`DataError` that names ``path`` if it holds anything else."""
    if array.dtype.kind not in "buif":
        raise DataError(f"{path} holds {array.dtype}, expected labels.")
    values = np.unique(array)
    if array.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise DataError(f"{path} holds NaN or infinity.")
        if (fractions := values[values != np.round(values)]).size:
            raise DataError(f"{path} holds {fractions[0]:g}, but labels are integers.")
    if len(classes) == 2 and 255 in values and set(values.tolist()) <= {0, 255}:
        array, values = array == 255, values // 255
    if values[0] < 0 or values[-1] >= len(classes):
        shown = ", ".join(f"{value:g}" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
        enough = f" or, for pairs, set classes={int(values[-1]) + 1}" if values[0] >= 0 else ""
        raise DataError(
            f"{path} holds labels {shown}, but there are {len(classes)} classes (0-{len(classes) - 1}); "
            f"fix the file{enough}."
        )
    return np.ascontiguousarray(array).astype(np.uint8 if len(classes) <= 256 else np.int16)
