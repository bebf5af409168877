"""Cases that are ready for training, each in a file of its own, of which no more is read than is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from steerformer.data import cache
from steerformer.data.base import shuffled
from steerformer.data.prepare import Prepared

_PLACES = 2000
"""Voxels of each class that patches may be centered on; more would not make patches more various."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A prepared case in the cache.

    Args:
        name: of the case.
        path: its file.
        channels: of its input.
        shape: its voxels along each axis.
        spacing: their size.
        counts: voxels of each class.
        present: classes that the scan's own labels have, of which cutting and resampling may leave no voxel.
    """

    name: str
    path: Path
    channels: int
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    counts: Tensor
    present: frozenset[int]

    @classmethod
    def open(cls, name: str, path: Path) -> "Stored":
        """What is to be known of a case without reading it."""
        with cache.opened(path) as file:
            channels, *shape = file.get_slice("x").get_shape()
            spacing = tuple(file.get_tensor("spacing").tolist())
            present = frozenset(file.get_tensor("present").tolist())
            return cls(name, path, channels, tuple(shape), spacing, file.get_tensor("counts"), present)

    def read(self, box: Sequence[slice] | None = None) -> tuple[Tensor, Tensor]:
        """``x`` (channels, \\*space) in float32 and ``labels`` (\\*space), of the whole case or of a box in it."""
        box = [slice(0, n) for n in self.shape] if box is None else list(box)
        with cache.opened(self.path) as file:
            x = file.get_slice("x")[(slice(0, self.channels), *box)]
            labels = file.get_slice("labels")[tuple(box)]
        return x.float(), labels

    def places(self) -> Tensor:
        """Some voxels (place, 1 + dim) that are not background: the class, then the coordinates."""
        with cache.opened(self.path) as file:
            found: Tensor = file.get_tensor("places")
        return found


def tensors(prepared: Prepared, labels: Tensor, classes: int, *, half: bool) -> cache.Tensors:
    """What is stored of a case: ``labels`` are those of the scan."""
    present = labels.unique().long()
    labels = prepared.labels(labels)
    return {
        "x": prepared.x.half() if half else prepared.x,
        "labels": labels,
        "spacing": torch.tensor(prepared.spacing, dtype=torch.float64),
        "counts": labels.flatten().long().bincount(minlength=classes),
        "present": present,
        "places": _places(labels, classes),
    }


def _places(labels: Tensor, classes: int) -> Tensor:
    found = []
    for label in range(1, classes):
        places = (labels == label).nonzero()
        chosen = places[shuffled(len(places), label)[:_PLACES]]
        found.append(torch.cat([torch.full((len(chosen), 1), label), chosen], dim=1))
    return torch.cat(found).to(torch.int32)
