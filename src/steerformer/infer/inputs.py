"""Arrays as inputs of a model: they mean what the same values mean in a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.io.errors import DataError
from steerformer.io.scans import Scan
from steerformer.models import Model

Input = str | Path | np.ndarray | Tensor
"""A file, or an array (channels, \\*space)."""


def array_scan(
    array: np.ndarray | Tensor, model: Model, spacing: Sequence[float] | None = None, *, name: str = "array"
) -> Scan:
    """An array (channels, \\*space) as a scan; 8- and 16-bit images are scaled to 0 to 1, as files are.

    A :class:`DataError` if the model does not take this shape, or if a value is not a finite number.
    """
    channels, dim = model.config.in_channels, model.in_type.group.dim
    values = _as_numpy(array)
    if values.ndim != 1 + dim or len(values) != channels or not values.size:
        axes = "height, width" if dim == 2 else "x, y, z"
        raise DataError(f"{name} has shape {values.shape}, but the model takes ({channels}, {axes}).")
    if values.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {values.dtype}, expected real numbers.")
    x = torch.from_numpy(np.array(values, dtype=np.float32))
    if not x.isfinite().all():
        raise DataError(f"{name} holds NaN or infinity.")
    if dim == 2 and values.dtype.kind in "iu":
        x /= 255 if values.dtype.itemsize == 1 else 65535
    return Scan(x, _steps(spacing, dim), Path(name), "image" if dim == 2 else "volume")


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
