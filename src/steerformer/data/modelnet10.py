"""ModelNet10: objects of ten classes as point clouds, voxelized on access."""

import math

import torch
from torch import Tensor

from steerformer.data import cache, point_clouds
from steerformer.data.config import ModelNet10Config, ObjectRotation
from steerformer.data.dataset import ClassificationDataset, Progress, Splits, hold_out, no_progress
from steerformer.data.rotation import rotate_batch
from steerformer.data.voxelization import center_in_unit_sphere, voxelize
from steerformer.groups import SO3

TILT = SO3.rotation(math.radians(35), (1.0, 1.0, 1.0))
"""Rotation of tilted grids: no axis of an object is within 26 degrees of a line of voxels, diagonals included."""
_CHUNK = 500
_TEST = 1_000_000
"""Number of the first test object, so that test and training objects have different random numbers."""


class ModelNet10(ClassificationDataset):
    """Objects (1, size, size, size) with values from 0 to 1; the last axis points up, except on a tilted grid.

    Clouds are voxelized on access: a cloud takes a tenth of the memory of its grid, and voxelization milliseconds.
    """

    def __init__(
        self, points: Tensor, labels: Tensor, numbers: Tensor, config: ModelNet10Config, *, training: bool
    ) -> None:
        super().__init__(labels, numbers, seed=config.seed)
        self.points = points
        self.config = config
        self.training = training

    def sample(self, index: int) -> Tensor:
        config = self.config
        random = self.generator(index, fixed=not self.training)
        kind = config.train_rotation if self.training else config.test_rotation
        R = draw_rotation(kind, self.generator(index, fixed=True) if config.rotate_once else random)
        tilt = TILT if config.grid == "tilted" else torch.eye(3, dtype=R.dtype)
        points = self.points[index].float()
        if self.training and config.augment == "jitter":
            points = jitter(points, random)
        rotation = tilt @ R if config.rotate == "points" else tilt
        width = config.width if config.occupancy == "gaussian" else None
        x = voxelize((points @ rotation.to(points).T)[None], config.size, fill=config.fill, width=width)
        if config.rotate == "voxels" and kind != "none":
            x = rotate_batch(x, (tilt @ R @ tilt.T)[None], mode="nearest")
        return x[0]


def load(config: ModelNet10Config, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets; centered clouds are cached."""
    source = find(config)
    version = 2 if source.kind == "npz" else 1  # version 1 ignored the class names
    name = f"modelnet10-{cache.fingerprint(list(source.files), kind=source.kind, up=config.up, version=version)}"
    tensors = cache.cached(name, lambda: center_clouds(config, source, progress))
    remaining, held_out = hold_out(len(tensors["train_labels"]), config.validation, seed=config.seed, where=config.root)
    train = _subset(tensors, "train", config, remaining, training=True)
    validation = _subset(tensors, "train", config, held_out)
    test = _subset(tensors, "test", config, torch.arange(len(tensors["test_labels"])))
    return Splits(train, validation, test, point_clouds.CLASSES)


def find(config: ModelNet10Config) -> point_clouds.PointClouds:
    """The files; a :class:`DataError` that says what is missing."""
    return point_clouds.find(config.root)


def center_clouds(
    config: ModelNet10Config, source: point_clouds.PointClouds, progress: Progress = no_progress
) -> dict[str, Tensor]:
    """Read all clouds and center them in the unit sphere, in half precision: 1/2000 of the radius."""
    tensors = source.read(progress)
    shift = {"z": 0, "y": 1, "x": 2}[config.up]  # a cyclic permutation of the axes is a rotation
    for split in ("train", "test"):
        points = tensors[f"{split}_points"]
        done = []
        for start in range(0, len(points), _CHUNK):
            progress(f"centering {split} objects", start, len(points))
            done.append(center_in_unit_sphere(points[start : start + _CHUNK].float().roll(shift, dims=2)).half())
        tensors[f"{split}_points"] = torch.cat(done)
    return tensors


def draw_rotation(kind: ObjectRotation, random: torch.Generator) -> Tensor:
    """The identity, or a uniform random rotation about the vertical (``"z"``) or over SO(3)."""
    if kind == "none":
        return torch.eye(3, dtype=torch.float64)
    if kind == "so3":
        return SO3.random_rotation(random)
    return SO3.rotation(2 * math.pi * float(torch.rand((), generator=random)), (0.0, 0.0, 1.0))


def jitter(points: Tensor, random: torch.Generator) -> Tensor:
    """Scale a cloud by 0.8 to 1 along each axis, shift it within the unit sphere, add noise of 1/100 of the radius."""
    scale = 0.8 + 0.2 * torch.rand(3, generator=random)
    room = (1 - scale.max()) / math.sqrt(3)
    shift = room * (2 * torch.rand(3, generator=random) - 1)
    return points * scale + shift + 0.01 * torch.randn(points.shape, generator=random)


def _subset(
    tensors: dict[str, Tensor], split: str, config: ModelNet10Config, chosen: Tensor, *, training: bool = False
) -> ModelNet10:
    numbers = chosen + (_TEST if split == "test" else 0)
    points, labels = tensors[f"{split}_points"][chosen], tensors[f"{split}_labels"][chosen]
    return ModelNet10(points, labels, numbers, config, training=training)
