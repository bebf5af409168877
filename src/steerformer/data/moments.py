"""Mean and root mean square of a channel, plane by plane: a copy in double precision would take twice its memory."""

import math
from collections.abc import Iterator

from torch import Tensor


def channel_mean(channel: Tensor, counted: Tensor | None = None) -> float:
    """Mean of the voxels that count, all if not given; 0 if there are none."""
    sums = [(float(part.sum()), part.numel()) for part in _values(channel, counted)]
    return sum(total for total, _ in sums) / max(sum(count for _, count in sums), 1)


def root_mean_square(channel: Tensor, zero: float, counted: Tensor | None = None) -> float:
    """Root mean square of the differences from ``zero``, over the voxels that count; 0 if there are none."""
    sums = [(float((part - zero).square().sum()), part.numel()) for part in _values(channel, counted)]
    return math.sqrt(sum(total for total, _ in sums) / max(sum(count for _, count in sums), 1))


def _values(channel: Tensor, counted: Tensor | None) -> Iterator[Tensor]:
    """The voxels that count, plane by plane, in double precision."""
    for place, plane in enumerate(channel):
        yield (plane if counted is None else plane[counted[place]]).double()
