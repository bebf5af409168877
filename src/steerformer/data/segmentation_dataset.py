"""The data set that all segmentation data share: images and volumes with a label for every pixel or voxel."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from steerformer.data.cached_case import CachedCase
from steerformer.data.config import SegmentationDataConfig
from steerformer.data.dataset import SeededDataset
from steerformer.data.patches import IGNORE, centered_corner, patch_corner, read_patch, read_rotated_patch
from steerformer.data.rotation import rotate_labels, rotate_scan
from steerformer.groups import SO2, SO3
from steerformer.io.scans import Scan


class SegmentationDataset(SeededDataset):
    """Cases ``(x, labels)``: ``x`` (channels, \\*space) in float32, ``labels`` (\\*space) in int64.

    Args:
        cases: the cached cases.
        numbers: number of each case in its source.
        config: how patches are sampled and cases rotated.
        shape: common shape of all samples, cut or padded, for training; ``None`` for whole cases, each with its own
            shape, one at a time.
    """

    def __init__(
        self,
        cases: Sequence[CachedCase],
        numbers: Tensor,
        config: SegmentationDataConfig,
        *,
        shape: tuple[int, ...] | None,
    ) -> None:
        super().__init__(numbers, seed=config.seed)
        self.cases = tuple(cases)
        self.config = config
        self.shape = shape

    def whole(self) -> "SegmentationDataset":
        """The same cases without patches, as they are evaluated."""
        return SegmentationDataset(self.cases, self.numbers, self.config, shape=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the cases."""
        return tuple(case.name for case in self.cases)

    @property
    def counts(self) -> Tensor:
        """Voxels of each class in each case (case, class), before patches are cut or rotated."""
        return torch.stack([case.counts for case in self.cases]) if self.cases else torch.zeros(0, 0).long()

    def spacing(self, index: int) -> tuple[float, ...]:
        """Voxel spacing of a case: millimeters where its file states it, else 1."""
        return self.cases[self.position(index)].spacing

    def present(self, index: int) -> frozenset[int]:
        """Classes in the scan's own labels, even if preprocessing or rotation removed all their voxels."""
        return self.cases[self.position(index)].present

    def scan(self, index: int) -> Scan:
        """A case as a scan with labels."""
        x, labels = self[index]
        kind = "image" if labels.ndim == 2 else "volume"
        return Scan(x, self.spacing(index), Path(self.cases[self.position(index)].name), kind, labels=labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index = self.position(index)
        x, labels = self._whole_case(index) if self.shape is None else self._patch(index, self.shape)
        return x, labels.long()

    def _whole_case(self, index: int) -> tuple[Tensor, Tensor]:
        case = self.cases[index]
        x, labels = case.read()
        if self.config.test_rotation == "none":
            return x, labels
        R = _random_rotation(len(case.shape), self.generator(index, fixed=True))
        return rotate_scan(x, R, case.spacing), rotate_labels(labels, R, case.spacing)

    def _patch(self, index: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        case, config, random = self.cases[index], self.config, self.generator(index)
        R = _random_rotation(len(shape), random) if self._is_rotated(random) else None
        over_edges = config.padding_label == "background"
        padding_label = 0 if over_edges else IGNORE
        if config.patch_size is None:
            corner = centered_corner(case.shape, shape)
        else:
            corner = patch_corner(case, shape, random, foreground=config.foreground, over_edges=over_edges)
        if R is None and not config.train_scaling:
            x, labels = read_patch(case, corner, shape, padding_label)
        else:
            R = torch.eye(len(shape), dtype=torch.float64) if R is None else R
            scale = _random_factor(config.train_scaling, random)
            x, labels = read_rotated_patch(case, corner, shape, padding_label, R, scale)
        return random_intensities(x, config.train_intensity, random), labels

    def _is_rotated(self, random: torch.Generator) -> bool:
        config = self.config
        if config.train_rotation == "none" or config.train_rotated == 1:
            return config.train_rotation == "any"
        return float(torch.rand((), generator=random)) < config.train_rotated


def _random_rotation(dim: int, random: torch.Generator) -> Tensor:
    return (SO2 if dim == 2 else SO3).random_rotation(random)


def _random_factor(strength: float, random: torch.Generator) -> float:
    """A factor from ``1 / (1 + strength)`` to ``1 + strength``, uniform in its logarithm."""
    return (1 + strength) ** (2 * float(torch.rand((), generator=random)) - 1) if strength else 1.0


def random_intensities(x: Tensor, strength: float, random: torch.Generator) -> Tensor:
    r"""Random contrast and gamma of every channel, $c\, \mathrm{sign}(x) |x|^\gamma$, which keep 0, the background."""
    if not strength:
        return x
    changed = [
        _random_factor(strength, random) * channel.sign() * channel.abs() ** _random_factor(strength, random)
        for channel in x
    ]
    return torch.stack(changed)
