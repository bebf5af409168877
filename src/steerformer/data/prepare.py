"""What happens to a scan before a network sees it, the same for training and for prediction, and the way back."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.base import DataError
from steerformer.data.config import CasesConfig
from steerformer.data.files import resample

Number = TypeVar("Number", int, float)

_CONSTANT = 1e-6
"""Deviation of a constant channel, as part of its largest value: interpolation leaves rounding in it."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A scan (channels, \\*space) as a network sees it: cropped, resampled, normalized.

    Args:
        x: the input.
        spacing: size of its voxels.
        shape: voxels of the scan that it was made from.
        box: the part of the scan that it shows.
    """

    x: Tensor
    spacing: tuple[float, ...]
    shape: tuple[int, ...]
    box: tuple[slice, ...]

    def labels(self, labels: Tensor) -> Tensor:
        """Labels (\\*space) of the scan, on the grid of ``x``: each voxel has that of the nearest."""
        return _nearest(labels[self.box], self.x.shape[1:])

    def restore(self, values: Tensor) -> Tensor:
        """Labels (\\*space) or scores of classes (class, \\*space) on the grid of ``x``, on that of the whole scan.

        What was cropped is background: label 0, or the highest score there is for class 0 and the lowest for others.
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


def prepare(x: Tensor, spacing: Sequence[float], config: CasesConfig) -> Prepared:
    """A scan (channels, \\*space) with voxels of size ``spacing``, made ready as ``config`` says."""
    shape = tuple(x.shape[1:])
    box = foreground_box(x, config.crop)
    x = x[(slice(None), *box)]
    target = _target(x.shape[1:], spacing, config)
    extent = [n * step for n, step in zip(x.shape[1:], spacing, strict=True)]
    steps = tuple(length / n for length, n in zip(extent, target, strict=True))
    return Prepared(normalize(resample(x, target), config.normalize), steps, shape, box)


def foreground_box(x: Tensor, margin: int | None) -> tuple[slice, ...]:
    """The smallest box around all that is not 0 in some channel, and a margin; everything if ``margin`` is ``None``."""
    shape = x.shape[1:]
    found = (x != 0).any(dim=0)
    if margin is None or not found.any():
        return tuple(slice(0, n) for n in shape)
    box = []
    for axis, n in enumerate(shape):
        others = [other for other in range(len(shape)) if other != axis]
        places = found.amax(dim=others).nonzero()
        box.append(slice(max(int(places[0]) - margin, 0), min(int(places[-1]) + 1 + margin, n)))
    return tuple(box)


def normalize(x: Tensor, how: str) -> Tensor:
    """Channels of mean 0 and deviation 1, over all values or (``"nonzero"``) over those that are not 0.

    A constant channel becomes 0. Plane by plane, since copies in double precision of a whole scan would take ten times
    its memory.
    """
    if how == "none":
        return x
    done = torch.zeros_like(x)
    for channel, result in zip(x, done, strict=True):
        mean, deviation = _moments(channel, how)
        largest = max(-float(channel.min()), float(channel.max()))
        if deviation > _CONSTANT * largest:
            for plane, target in zip(channel, result, strict=True):
                scaled = ((plane.double() - mean) / deviation).to(x)
                target.copy_(scaled if how == "image" else scaled.where(plane != 0, 0))
    return done


def _moments(channel: Tensor, how: str) -> tuple[float, float]:
    """Mean and deviation of the values that count; 0 and 0 if none does."""

    def values() -> Iterator[Tensor]:
        return ((plane if how == "image" else plane[plane != 0]).double() for plane in channel)

    if not (count := sum(part.numel() for part in values())):
        return 0.0, 0.0
    mean = sum(float(part.sum()) for part in values()) / count
    return mean, math.sqrt(sum(float((part - mean).square().sum()) for part in values()) / count)


def along(values: Sequence[Number], dim: int, what: str) -> tuple[Number, ...]:
    """A number for each axis of space; one stands for all."""
    if len(values) not in (1, dim):
        raise DataError(f"{what} has {len(values)} numbers, but the data have {dim} axes of space.")
    return tuple(values) * (dim // len(values))


def _target(shape: Sequence[int], spacing: Sequence[float], config: CasesConfig) -> tuple[int, ...]:
    """Voxels along each axis after resampling."""
    if config.size is not None:
        return along(config.size, len(shape), "size")
    if config.spacing is None:
        return tuple(shape)
    steps = along(config.spacing, len(shape), "spacing")
    return tuple(max(1, round(n * old / new)) for n, old, new in zip(shape, spacing, steps, strict=True))


def _nearest(labels: Tensor, shape: Sequence[int]) -> Tensor:
    if tuple(labels.shape) == tuple(shape):
        return labels
    return F.interpolate(labels[None, None].float(), tuple(shape), mode="nearest-exact")[0, 0].to(labels.dtype)
