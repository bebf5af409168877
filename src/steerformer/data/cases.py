"""Images and volumes with a label for every pixel or voxel."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.base import Numbered
from steerformer.data.config import CasesConfig
from steerformer.data.stored import Stored
from steerformer.data.turn import sample, turn_labels, turn_whole
from steerformer.fields import voxel_coordinates
from steerformer.groups import SO2, SO3

IGNORE = -100
"""Label of what lies outside a case; losses leave it out."""


class Cases(Numbered):
    """Cases ``(x, labels)``: ``x`` (channels, \\*space) in float32, ``labels`` (\\*space) in int64.

    Args:
        stored: where they are.
        numbers: of each in its source.
        config: how they are cut and turned.
        shape: the one shape of all cases to train on, which are cut and padded to it; ``None`` for whole cases, which
            may have different shapes and are to be taken one at a time.
    """

    def __init__(
        self, stored: Sequence[Stored], numbers: Tensor, config: CasesConfig, *, shape: tuple[int, ...] | None
    ) -> None:
        super().__init__(numbers, seed=config.seed)
        self.stored = tuple(stored)
        self.config = config
        self.shape = shape

    def whole(self) -> "Cases":
        """The same cases, each whole and in a shape of its own, as one tests on them."""
        return Cases(self.stored, self.numbers, self.config, shape=None)

    @property
    def names(self) -> tuple[str, ...]:
        """What the cases are called."""
        return tuple(case.name for case in self.stored)

    @property
    def counts(self) -> Tensor:
        """Pixels or voxels of each class in each case (case, class), before they are cut or turned."""
        return torch.stack([case.counts for case in self.stored]) if self.stored else torch.zeros(0, 0).long()

    def spacing(self, index: int) -> tuple[float, ...]:
        """Size of the pixels or voxels of a case: millimeters where its file tells, else 1."""
        return self.stored[self.position(index)].spacing

    def present(self, index: int) -> frozenset[int]:
        """Classes that the labels of the scan have, also where cutting, resampling or turning left nothing of them."""
        return self.stored[self.position(index)].present

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index = self.position(index)
        x, labels = self._whole(index) if self.shape is None else self._cut(index, self.shape)
        return x, labels.long()

    def _whole(self, index: int) -> tuple[Tensor, Tensor]:
        case = self.stored[index]
        x, labels = case.read()
        if self.config.test_rotation == "none":
            return x, labels
        R = _rotation(len(case.shape), self.generator(index, fixed=True))
        return turn_whole(x, R, case.spacing), turn_labels(labels, R, case.spacing)

    def _cut(self, index: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        case, random = self.stored[index], self.generator(index)
        turned = self.config.train_rotation == "any"
        R = _rotation(len(shape), random) if turned else None
        corner = _centered(case.shape, shape) if self.config.patch is None else self._corner(case, shape, random)
        outside = IGNORE if self.config.outside == "ignore" else 0
        return _straight(case, corner, shape, outside) if R is None else _turned(case, corner, shape, outside, R)

    def _corner(self, case: Stored, shape: tuple[int, ...], random: torch.Generator) -> list[int]:
        """Where a patch begins: anywhere it may, or so that it has a voxel of some class in its middle."""
        starts = [_starts(n, size, self.config.outside) for n, size in zip(case.shape, shape, strict=True)]
        places = case.places()
        if len(places) and float(torch.rand((), generator=random)) < self.config.foreground:
            present = places[:, 0].unique()
            chosen = places[places[:, 0] == present[_draw(len(present), random)], 1:]
            middle = chosen[_draw(len(chosen), random)].tolist()
            wanted = [place - size // 2 for place, size in zip(middle, shape, strict=True)]
            return [min(max(start, low), high) for start, (low, high) in zip(wanted, starts, strict=True)]
        return [low + _draw(high - low + 1, random) for low, high in starts]


def _starts(n: int, size: int, outside: str) -> tuple[int, int]:
    """The first and the last voxel of ``n`` at which a patch may begin.

    Where there is something to learn outside, its middle may be any voxel; else it shows as much of the case as it can,
    and what is too small lies in its middle.
    """
    if outside == "background":
        return -(size // 2), n - 1 - size // 2
    return (0, n - size) if n >= size else (_middle(n, size), _middle(n, size))


def _straight(case: Stored, corner: list[int], shape: Sequence[int], outside: int) -> tuple[Tensor, Tensor]:
    ends = [start + size for start, size in zip(corner, shape, strict=True)]
    box = [slice(max(start, 0), min(end, n)) for start, end, n in zip(corner, ends, case.shape, strict=True)]
    x, labels = case.read(box)
    ranges = zip(reversed(box), reversed(corner), reversed(ends), strict=True)
    pads = [side for part, start, end in ranges for side in (part.start - start, end - part.stop)]
    return F.pad(x, pads), F.pad(labels.long(), pads, value=outside)


def _turned(case: Stored, corner: list[int], shape: Sequence[int], outside: int, R: Tensor) -> tuple[Tensor, Tensor]:
    """A patch that stands askew in the case, turned by ``R`` about its center; only what it touches is read."""
    steps = torch.tensor(case.spacing, dtype=torch.float64)
    center = torch.tensor(corner) + (torch.tensor(shape) - 1) / 2
    places = voxel_coordinates(shape, case.spacing) @ R / steps + center  # row vectors: R^-1 x
    low, high = places.flatten(0, -2).aminmax(dim=0)
    size = torch.tensor(case.shape)
    first = low.floor().long().clamp_min(0).minimum(size - 1)
    last = high.ceil().long().clamp_min(0).minimum(size - 1)
    x, labels = case.read([slice(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    places = (places - (first + last) / 2).float()[None]
    turned = sample(x[None], places)[0]
    found = sample(labels[None, None].float() + 1, places, mode="nearest")[0, 0].long() - 1  # 0 is outside
    return turned, torch.where(found < 0, outside, found)


def _centered(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    return [_middle(n, size) for n, size in zip(shape, target, strict=True)]


def _middle(n: int, size: int) -> int:
    """Where a part of ``size`` voxels begins that has the middle of ``n`` in its middle."""
    return int((n - size) / 2)


def _rotation(dim: int, random: torch.Generator) -> Tensor:
    return (SO2 if dim == 2 else SO3).random_rotation(random)


def _draw(count: int, random: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=random))
