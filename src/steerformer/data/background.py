"""The background of a scan: its intensity, measured at the border, and the foreground that differs from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steerformer.data.moments import channel_mean, root_mean_square

_DEVIATIONS = 4.0  # of the background's noise, beyond which a voxel is foreground
_QUANTILE, _NORMAL = 0.9, 1.645  # of absolute deviations: normal noise has 90 % within 1.645 standard deviations
_UNIFORM = 0.2  # largest noise of a background, relative to the standard deviation of the whole channel
_MASKED = 0.1  # share of the border from which on an exact value can be a mask
_CLEAR = 0.05  # distance of all other values at the border from a mask, relative to the range of the channel
_ROUNDING = 1e-5  # of the range: errors that resampling leaves in a constant background
_SLAB = 8  # planes that are filtered at once


@dataclass(frozen=True)
class Background:
    """Intensity of the background of one channel.

    Args:
        level: the intensity.
        noise: its robust standard deviation; ``None`` where no side of the scan is uniform, as in scans that are
            cropped to an organ: then all voxels are foreground.
        rounding: differences that do not count.
    """

    level: float
    noise: float | None
    rounding: float = 0.0

    def foreground(self, channel: Float[Tensor, "*space"]) -> Bool[Tensor, "*space"]:
        """Voxels that differ from the background by more than its noise; single ones among noise do not count."""
        if self.noise is None:
            return torch.ones_like(channel, dtype=torch.bool)
        least = max(_DEVIATIONS * self.noise, self.rounding)
        found = torch.empty(channel.shape, dtype=torch.bool)
        for plane, target in zip(channel, found, strict=True):
            torch.gt((plane - self.level).abs(), least, out=target)
        return found if self.noise <= self.rounding else _without_specks(found)


def measure_background(channel: Float[Tensor, "*space"]) -> Background:
    """Intensity and noise of the background of a channel.

    If a good part of the border has exactly the smallest value and all else is far from it, this is the background: a
    masked or padded scan, even if its content reaches over the edges. Otherwise it is the median of those sides of the
    scan that are uniform; anatomy often reaches through the others.
    """
    smallest, largest = float(channel.min()), float(channel.max())
    rounding = _ROUNDING * (largest - smallest)
    sides = _sides(channel)
    if _is_mask(torch.cat(sides), smallest, rounding, least=_CLEAR * (largest - smallest)):
        return Background(smallest, 0.0, rounding)
    most = _UNIFORM * root_mean_square(channel, channel_mean(channel))
    uniform = [side for side in sides if _median_and_noise([side])[1] <= most]
    level, noise = _median_and_noise(uniform or sides)
    return Background(level, noise if uniform and noise <= most else None, rounding)


def _is_mask(border: Tensor, smallest: float, rounding: float, *, least: float) -> bool:
    differences = border - smallest
    others = differences[differences > rounding]
    share = 1 - len(others) / len(border)
    return share >= _MASKED and (not len(others) or float(others.median()) > least)


def _median_and_noise(sides: Sequence[Tensor]) -> tuple[float, float]:
    """Median and robust standard deviation of the voxels of some sides.

    Not by the median absolute deviation, which is 0 where most of the noise was rounded to one number.
    """
    values = torch.cat(list(sides))
    level = values.median()
    place = round(_QUANTILE * (len(values) - 1)) + 1
    return float(level), float((values - level).abs().kthvalue(place).values) / _NORMAL


def _sides(channel: Tensor) -> list[Tensor]:
    """Voxels of each side of the grid, along all axes with more than one voxel."""
    axes = [axis for axis, n in enumerate(channel.shape) if n > 1]
    if not axes:
        return [channel.flatten().double()]
    return [channel.select(axis, end).flatten().double() for axis in axes for end in (0, -1)]


def _without_specks(found: Bool[Tensor, "*space"]) -> Bool[Tensor, "*space"]:
    """Voxels with a majority of foreground among them and their neighbors; in slabs, which take little memory."""
    from scipy.ndimage import uniform_filter

    kept = torch.empty_like(found)
    for start in range(0, len(found), _SLAB):
        first, last = max(start - 1, 0), min(start + _SLAB + 1, len(found))
        share = uniform_filter(found[first:last].numpy().astype("float32"), size=3, mode="nearest")
        inside = slice(start - first, start - first + min(_SLAB, len(found) - start))
        kept[start : start + _SLAB] = torch.from_numpy(share[inside] > 0.5)
    return kept & found
