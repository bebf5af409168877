"""Inputs of a model: files and arrays; an array means what a file with the same values means."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.io.errors import DataError
from steerformer.io.images import scale_to_unit_range
from steerformer.io.scans import Scan
from steerformer.models import Model

Input = str | Path | np.ndarray | Tensor | Sequence[str | Path]
"""A file, an array (channels, \\*space), or the files of the modalities of one scan."""


def array_scan(
    array: np.ndarray | Tensor, model: Model, spacing: Sequence[float] | None = None, *, name: str = "array"
) -> Scan:
    """An array (channels, \\*space) as a scan; 8- and 16-bit images are scaled to 0 to 1, as files are.

    A :class:`DataError` if the model does not take this shape, or if a file could not hold these values.
    """
    channels, dim = model.config.in_channels, model.in_type.group.dim
    values = _as_numpy(array)
    if values.ndim != 1 + dim or len(values) != channels or not values.size:
        axes = "height, width" if dim == 2 else "x, y, z"
        raise DataError(f"{name} has shape {values.shape}, but the model takes ({channels}, {axes}).")
    if values.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {values.dtype}, expected real numbers.")
    x = _image(values, name) if dim == 2 else _volume(values, name)
    return Scan(x, _steps(spacing, dim), Path(name), "image" if dim == 2 else "volume")


def modality_files(item: Input) -> tuple[Path, ...] | None:
    """The files of an input: one, or one for each modality; ``None`` for an array."""
    if isinstance(item, str | Path):
        return (Path(item),)
    if isinstance(item, list | tuple) and item and all(isinstance(file, str | Path) for file in item):
        return tuple(Path(file) for file in item)
    return None


def _image(values: np.ndarray, name: str) -> Tensor:
    if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
        raise DataError(f"{name} holds {values.dtype}; pass uint8, uint16 or floats from 0 to 1.")
    return torch.from_numpy(scale_to_unit_range(values, str(values.dtype), name))


def _volume(values: np.ndarray, name: str) -> Tensor:
    x = torch.from_numpy(np.array(values, dtype=np.float32))
    if not x.isfinite().all():
        raise DataError(f"{name} holds NaN or infinity.")
    return x


def _as_numpy(array: np.ndarray | Tensor) -> np.ndarray:
    if not isinstance(array, Tensor):
        return np.asarray(array)
    array = array.detach().cpu()
    return (array.float() if array.is_floating_point() else array).numpy()  # NumPy has no bfloat16


def _steps(spacing: Sequence[float] | None, dim: int) -> tuple[float, ...]:
    if spacing is None:
        return (1.0,) * dim
    steps = tuple(float(step) for step in spacing)
    if len(steps) != dim or not all(0 < step < float("inf") for step in steps):
        raise DataError(f"spacing takes {dim} positive numbers, one for each spatial axis, got {steps}.")
    return steps
