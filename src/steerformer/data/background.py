"""The background of a scan: its intensity, measured at the border, and the foreground that differs from it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_DEVIATIONS = 4.0  # of the border's noise, beyond which a voxel is foreground
_NORMAL = 1.4826  # standard deviation of normal noise per median absolute deviation
_UNIFORM = 0.2  # largest noise of a background, relative to the standard deviation of the whole channel
_MASKED = 0.1  # share of the border from which on its smallest value is the background
_MOST_VOXELS = 1_000_000  # of the border that medians look at


@dataclass(frozen=True)
class Background:
    """Intensity of the background of one channel.

    Args:
        level: median of the border.
        noise: robust standard deviation of the border; ``None`` where the border is not uniform, as in scans that are
            cropped to an organ: then all voxels are foreground.
    """

    level: float
    noise: float | None

    def foreground(self, channel: Float[Tensor, "*space"]) -> Bool[Tensor, "*space"]:
        """Voxels that differ from the background by more than its noise; single ones among noise do not count."""
        if self.noise is None:
            return torch.ones_like(channel, dtype=torch.bool)
        found = (channel - self.level).abs() > _DEVIATIONS * self.noise
        return found if self.noise == 0 else _without_specks(found)


def measure_background(channel: Float[Tensor, "*space"]) -> Background:
    """Median and noise of the outermost voxels of a channel.

    If a good part of these has exactly the smallest value, this is the background: a masked or padded scan, even if its
    content reaches over the edges.
    """
    border, smallest = _border(channel).double(), float(channel.min())
    if float((border == smallest).double().mean()) >= _MASKED:
        return Background(smallest, 0.0)
    level = border.median()
    noise = _NORMAL * float((border - level).abs().median())
    spread = float(channel.std(correction=0))
    return Background(float(level), noise if noise <= _UNIFORM * spread else None)


def _border(channel: Tensor) -> Tensor:
    """Voxels on the faces of the grid, evenly thinned out where there are very many."""
    faces = [channel.select(axis, end).flatten() for axis in range(channel.ndim) for end in (0, -1)]
    border = torch.cat(faces)
    return border[:: -(-len(border) // _MOST_VOXELS)]


def _without_specks(found: Bool[Tensor, "*space"]) -> Bool[Tensor, "*space"]:
    """Voxels with a majority of foreground among them and their neighbors."""
    from scipy.ndimage import uniform_filter

    share = uniform_filter(found.numpy().astype("float32"), size=3, mode="nearest")
    return found & torch.from_numpy(share > 0.5)
