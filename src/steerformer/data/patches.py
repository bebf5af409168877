"""Patches of cases: where they start, and their voxels, upright or rotated."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.affine import AffineMap
from steerformer.data.cached_case import CachedCase

IGNORE = -100
"""Label of the padding around a case; losses and scores leave it out."""


def patch_corner(
    case: CachedCase, shape: Sequence[int], random: torch.Generator, *, foreground: float, over_edges: bool
) -> list[int]:
    """First voxel of a random patch; with probability ``foreground`` it is centered on a voxel of a random class.

    With ``over_edges`` the center may be any voxel; else the patch shows as much of the case as it can.
    """
    starts = [_start_range(n, size, over_edges) for n, size in zip(case.shape, shape, strict=True)]
    voxels = case.foreground_voxels()
    if len(voxels) and float(torch.rand((), generator=random)) < foreground:
        present = voxels[:, 0].unique()
        chosen = voxels[voxels[:, 0] == present[_draw(len(present), random)], 1:]
        center = chosen[_draw(len(chosen), random)].tolist()
        wanted = [place - size // 2 for place, size in zip(center, shape, strict=True)]
        return [min(max(start, low), high) for start, (low, high) in zip(wanted, starts, strict=True)]
    return [low + _draw(high - low + 1, random) for low, high in starts]


def centered_corner(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """First voxel of the part of shape ``target`` in the center of a grid; negative where it is larger."""
    return [_centered_start(n, size) for n, size in zip(shape, target, strict=True)]


def read_patch(
    case: CachedCase, corner: Sequence[int], shape: Sequence[int], padding_label: int
) -> tuple[Tensor, Tensor]:
    """``x`` (channels, \\*shape) and ``labels`` (\\*shape) of a patch."""
    ends = [start + size for start, size in zip(corner, shape, strict=True)]
    box = [slice(max(start, 0), min(end, n)) for start, end, n in zip(corner, ends, case.shape, strict=True)]
    x, labels = case.read(box)
    ranges = zip(reversed(box), reversed(corner), reversed(ends), strict=True)
    pads = [side for part, start, end in ranges for side in (part.start - start, end - part.stop)]
    return F.pad(x, pads), F.pad(labels.long(), pads, value=padding_label)


def read_rotated_patch(
    case: CachedCase, corner: Sequence[int], shape: Sequence[int], padding_label: int, R: Tensor, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """``x`` and ``labels`` of a patch, rotated by ``R`` about its center and enlarged by ``scale``.

    Only the box that the rotated patch touches is read.
    """
    center = torch.tensor(corner) + (torch.tensor(shape) - 1) / 2
    box, grid = AffineMap.of_rotation(R, case.spacing, center, shape, scale=scale).within(case.shape)
    x, labels = case.read(box)
    inside = grid.inside(labels.shape)
    return grid.values(x), grid.labels(labels).long().where(inside, padding_label)


def _start_range(n: int, size: int, over_edges: bool) -> tuple[int, int]:
    """First and last start of a patch along an axis of ``n`` voxels."""
    if over_edges:
        return -(size // 2), n - 1 - size // 2
    return (0, n - size) if n >= size else (_centered_start(n, size), _centered_start(n, size))


def _centered_start(n: int, size: int) -> int:
    return int((n - size) / 2)


def _draw(count: int, random: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=random))
