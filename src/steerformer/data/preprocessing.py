"""Preprocessing of inputs, the same for training and prediction, and its inverse."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.background import Background, measure_background
from steerformer.data.config import SegmentationDataConfig
from steerformer.data.moments import channel_mean, root_mean_square
from steerformer.io.errors import DataError
from steerformer.io.formats import require_kind
from steerformer.io.images import read_image
from steerformer.io.nifti import as_channels, read_volume

Number = TypeVar("Number", int, float)

_CONSTANT = 1e-6
"""Standard deviation of a constant channel, relative to its largest value: interpolation leaves rounding errors."""


@dataclass(frozen=True, eq=False)
class Preprocessed:
    """A scan (channels, \\*space) as a network sees it: cropped, resampled, normalized.

    Args:
        x: the input.
        spacing: its voxel spacing.
        shape: shape of the scan.
        box: the part of the scan that was kept.
    """

    x: Tensor
    spacing: tuple[float, ...]
    shape: tuple[int, ...]
    box: tuple[slice, ...]

    def labels(self, labels: Tensor) -> Tensor:
        """Labels (\\*space) of the scan on the grid of ``x``, by nearest neighbor."""
        return _nearest(labels[self.box], self.x.shape[1:])

    def restore(self, values: Tensor) -> Tensor:
        """Labels (\\*space) or class scores (class, \\*space) on the grid of ``x``, on the grid of the scan.

        Cropped voxels are background: label 0, or the highest score for class 0 and the lowest for the others.
        """
        extent = [part.stop - part.start for part in self.box]
        if values.ndim == len(self.shape):
            whole = values.new_zeros(self.shape)
            whole[self.box] = _nearest(values, extent)
            return whole
        inside = resample(values, extent)
        if tuple(extent) == self.shape:
            return inside
        whole = inside.new_full((len(values), *self.shape), float(values.min()))
        whole[0] = float(values.max())
        whole[(slice(None), *self.box)] = inside
        return whole


def preprocess(x: Tensor, spacing: Sequence[float], config: SegmentationDataConfig) -> Preprocessed:
    """Crop, resample and normalize a scan (channels, \\*space) with the given voxel spacing."""
    shape = tuple(x.shape[1:])
    # measured on the whole scan: a crop may leave none of the background
    backgrounds = [measure_background(channel) for channel in x]
    box = foreground_box(x, config.crop, backgrounds)
    x = x[(slice(None), *box)]
    target = _target(x.shape[1:], spacing, config)
    extent = [n * step for n, step in zip(x.shape[1:], spacing, strict=True)]
    steps = tuple(length / n for length, n in zip(extent, target, strict=True))
    return Preprocessed(normalize(resample(x, target), config.normalize, backgrounds), steps, shape, box)


def read_sample(path: Path, *, size: int, channels: int, normalize: str = "none") -> Tensor:
    """Read one sample to classify: an image (channels, size, size) with values from 0 to 1, or a cubic volume.

    The longest side becomes ``size``, in millimeters if a NIfTI file states its voxel spacing; the rest is zero-padded
    on both sides. ``normalize="std"`` divides a volume by its standard deviation.
    """
    if require_kind(path) == "image":
        return fit_to_grid(read_image(path, channels), size)
    array, geometry = read_volume(path)
    x = as_channels(array, channels, path)
    deviation = float(x.std()) if normalize == "std" else 0.0
    return fit_to_grid(x / deviation if deviation > 0 else x, size, geometry.spacing if geometry else None)


def fit_to_grid(x: Tensor, size: int, spacing: tuple[float, ...] | None = None) -> Tensor:
    """Resample (channels, \\*space) so that its longest side is ``size``, and zero-pad to a square or cube."""
    extent = [n * step for n, step in zip(x.shape[1:], spacing or (1.0,) * (x.ndim - 1), strict=True)]
    shape = [max(1, round(size * length / max(extent))) for length in extent]
    x = resample(x, shape)
    pads = [((size - n) // 2, size - n - (size - n) // 2) for n in shape]
    return F.pad(x, [side for pair in reversed(pads) for side in pair])


def resample(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Resample (channels, \\*space) to a new shape over the same extent: area averaging down, linear up."""
    shrunk = [min(new, old) for new, old in zip(shape, x.shape[1:], strict=True)]
    if shrunk != list(x.shape[1:]):
        x = F.interpolate(x[None], shrunk, mode="area")[0]
    if list(shape) != shrunk:
        x = F.interpolate(x[None], list(shape), mode="bilinear" if x.ndim == 3 else "trilinear", align_corners=False)[0]
    return x


def foreground_box(x: Tensor, margin: int | None, backgrounds: Sequence[Background] | None = None) -> tuple[slice, ...]:
    """Bounding box of the foreground of all channels plus ``margin``; the whole scan if ``margin`` is ``None``.

    See :mod:`steerformer.data.background`, which measures backgrounds that are not given.
    """
    shape = x.shape[1:]
    whole = tuple(slice(0, n) for n in shape)
    if margin is None:
        return whole
    found = torch.zeros(shape, dtype=torch.bool)
    for channel, background in zip(x, backgrounds or map(measure_background, x), strict=True):
        found |= background.foreground(channel)
    if not found.any():
        return whole
    box = []
    for axis, n in enumerate(shape):
        others = [other for other in range(len(shape)) if other != axis]
        places = found.amax(dim=others).nonzero()
        box.append(slice(max(int(places[0]) - margin, 0), min(int(places[-1]) + 1 + margin, n)))
    return tuple(box)


def normalize(x: Tensor, method: str, backgrounds: Sequence[Background] | None = None) -> Tensor:
    """Normalize intensities; ``method`` as in :class:`~steerformer.data.config.SegmentationDataConfig`.

    ``backgrounds`` are those of the channels, measured if not given.

    A constant channel becomes 0. Works plane by plane, since double-precision copies of a whole scan would take ten
    times its memory.
    """
    if method == "none":
        return x
    done = torch.zeros_like(x)
    for number, (channel, result) in enumerate(zip(x, done, strict=True)):
        zero, unit = _zero_and_unit(channel, method, backgrounds[number] if backgrounds else None)
        largest = max(-float(channel.min()), float(channel.max()))
        if unit > _CONSTANT * largest:
            for plane, target in zip(channel, result, strict=True):
                target.copy_((plane.double() - zero) / unit)
            if method == "nonzero":
                result[channel == 0] = 0
    return done


def _zero_and_unit(channel: Tensor, method: str, background: Background | None) -> tuple[float, float]:
    """The intensity that becomes 0, and the one by which differences from it are divided."""
    if method == "image":
        mean = channel_mean(channel)
        return mean, root_mean_square(channel, mean)
    if method == "nonzero":
        mean = channel_mean(channel, channel != 0)
        return mean, root_mean_square(channel, mean, channel != 0)
    background = background or measure_background(channel)
    return background.level, root_mean_square(channel, background.level, background.foreground(channel))


def for_each_axis(values: Sequence[Number], dim: int, key: str) -> tuple[Number, ...]:
    """One number for each spatial axis; a single one counts for all."""
    if len(values) not in (1, dim):
        raise DataError(f"{key} has {len(values)} numbers, but the data have {dim} spatial axes.")
    return tuple(values) * (dim // len(values))


def _target(shape: Sequence[int], spacing: Sequence[float], config: SegmentationDataConfig) -> tuple[int, ...]:
    """Shape after resampling."""
    if config.size is not None:
        return for_each_axis(config.size, len(shape), "size")
    if config.spacing is None:
        return tuple(shape)
    steps = for_each_axis(config.spacing, len(shape), "spacing")
    return tuple(max(1, round(n * old / new)) for n, old, new in zip(shape, spacing, steps, strict=True))


def _nearest(labels: Tensor, shape: Sequence[int]) -> Tensor:
    if tuple(labels.shape) == tuple(shape):
        return labels
    return F.interpolate(labels[None, None].float(), tuple(shape), mode="nearest-exact")[0, 0].to(labels.dtype)
