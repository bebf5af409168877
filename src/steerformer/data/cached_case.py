"""A preprocessed case in the cache: one file per case, read in parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from steerformer.data.seeding import shuffled

_FOREGROUND_VOXELS = 2000
"""Voxels of each class that patches may be centered on; more would not make patches more diverse."""


@dataclass(frozen=True, eq=False)
class CachedCase:
    """A preprocessed case in the cache.

    Args:
        name: name of the case.
        path: file in the cache.
        channels: channels of the input.
        shape: voxels along each axis.
        spacing: voxel spacing.
        counts: voxels of each class.
        present: classes in the scan's own labels, even if cropping or resampling removed all their voxels.
    """

    name: str
    path: Path
    channels: int
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    counts: Tensor
    present: frozenset[int]

    @classmethod
    def open(cls, name: str, path: Path) -> "CachedCase":
        """Read everything but the voxels."""
        with safe_open(path, framework="pt") as file:
            channels, *shape = file.get_slice("x").get_shape()
            spacing = tuple(file.get_tensor("spacing").tolist())
            present = frozenset(file.get_tensor("present").tolist())
            return cls(name, path, channels, tuple(shape), spacing, file.get_tensor("counts"), present)

    def read(self, box: Sequence[slice] | None = None) -> tuple[Tensor, Tensor]:
        """``x`` (channels, \\*space) in float32 and ``labels`` (\\*space), of the whole case or of a box in it."""
        box = [slice(0, n) for n in self.shape] if box is None else list(box)
        with safe_open(self.path, framework="pt") as file:
            x = file.get_slice("x")[(slice(0, self.channels), *box)]
            labels = file.get_slice("labels")[tuple(box)]
        return x.float(), labels

    def foreground_voxels(self) -> Tensor:
        """A sample of foreground voxels (voxel, 1 + dim): the class, then the coordinates."""
        with safe_open(self.path, framework="pt") as file:
            found: Tensor = file.get_tensor("foreground_voxels")
        return found


def cached_tensors(
    x: Tensor, labels: Tensor, spacing: Sequence[float], present: Tensor, classes: int, *, half: bool
) -> dict[str, Tensor]:
    """What the cache keeps of a preprocessed case; ``present`` are the classes in the scan's own labels."""
    return {
        "x": x.half() if half else x,
        "labels": labels,
        "spacing": torch.tensor(spacing, dtype=torch.float64),
        "counts": labels.flatten().long().bincount(minlength=classes),
        "present": present,
        "foreground_voxels": _foreground_voxels(labels, classes),
    }


def _foreground_voxels(labels: Tensor, classes: int) -> Tensor:
    found = []
    for label in range(1, classes):
        voxels = (labels == label).nonzero()
        chosen = voxels[shuffled(len(voxels), label)[:_FOREGROUND_VOXELS]]
        found.append(torch.cat([torch.full((len(chosen), 1), label), chosen], dim=1))
    return torch.cat(found).to(torch.int32)
