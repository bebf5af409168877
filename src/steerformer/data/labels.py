"""Labels of every pixel or voxel, out of files."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError
from steerformer.data.files import require_kind
from steerformer.data.images import read_numbers
from steerformer.data.scans import Scan, lay_over
from steerformer.data.volumes import read_volume

_SHOWN = 6


def read_labels(path: Path, scan: Scan, classes: tuple[str, ...]) -> Tensor:
    """The labels (\\*space) of ``scan`` that ``path`` holds, on the scan's grid, from 0 to the number of classes - 1.

    Where there are two classes, 0 and 255 stand for 0 and 1.
    """
    if require_kind(path) != scan.kind:
        raise DataError(f"{path} cannot be the labels of {scan.path}: one is an image and one a volume.")
    if scan.kind == "image":
        array, geometry = read_numbers(path), None
    else:
        array, geometry = read_volume(path)
        if array.ndim == 4 and array.shape[3] == 1:
            array = array[..., 0]
        if array.ndim != 3:
            raise DataError(f"{path} has shape {array.shape}, expected labels on three axes.")
    array = lay_over(scan, array, geometry, path)
    return torch.from_numpy(checked_labels(array, path, classes))


def checked_labels(array: np.ndarray, path: object, classes: tuple[str, ...]) -> np.ndarray:
    """Whole numbers of classes out of what ``path`` holds; a :class:`DataError` that names it if it holds others."""
    if array.dtype.kind not in "buif":
        raise DataError(f"{path} holds {array.dtype}, expected labels.")
    values = np.unique(array)
    if array.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise DataError(f"{path} holds NaN or infinity.")
        if (odd := values[values != np.round(values)]).size:
            raise DataError(f"{path} holds {odd[0]:g}, but labels are whole numbers.")
    if len(classes) == 2 and 255 in values and set(values.tolist()) <= {0, 255}:
        array, values = array == 255, values // 255
    if values[0] < 0 or values[-1] >= len(classes):
        shown = ", ".join(f"{value:g}" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
        raise DataError(
            f"{path} holds the labels {shown}, but there are {len(classes)} classes, 0 to {len(classes) - 1}; relabel "
            f"them or, for pairs of your own, set classes."
        )
    return np.ascontiguousarray(array).astype(np.uint8 if len(classes) <= 256 else np.int16)
