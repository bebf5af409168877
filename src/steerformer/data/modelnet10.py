"""ModelNet10: furniture as clouds of points, put on a grid when asked for."""

import math

import torch
from torch import Tensor

from steerformer.data import cache, clouds
from steerformer.data.base import Progress, Samples, Splits, hold_out, ignore
from steerformer.data.config import ModelNet10Config, Turn
from steerformer.data.turn import turn
from steerformer.data.voxels import centered, voxelize
from steerformer.groups import SO3

TILT = SO3.rotation(math.radians(35), (1.0, 1.0, 1.0))
"""The axes of an object then lie at least 26 degrees from every line of neighboring voxels, diagonals included."""
_CHUNK = 500
_TEST = 1_000_000
"""Numbers of test objects start here, so that no test object shares its random numbers with a training object."""


class Voxels(Samples):
    """Objects (1, size, size, size), with values from 0 to 1; the last axis points up, but on a tilted grid.

    Grids are made when asked for: a cloud takes a tenth of the memory of its grid, and making one takes milliseconds.
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
        R = draw_rotation(kind, random)
        tilt = TILT if config.grid == "tilted" else torch.eye(3, dtype=R.dtype)
        points = self.points[index].float()
        if self.training and config.augment == "jitter":
            points = jitter(points, random)
        whole = tilt @ R if config.rotate == "points" else tilt
        width = config.width if config.occupancy == "gaussian" else None
        x = voxelize((points @ whole.to(points).T)[None], config.size, fill=config.fill, width=width)
        if config.rotate == "voxels" and kind != "none":
            x = turn(x, (tilt @ R @ tilt.T)[None], mode="nearest")
        return x[0]


def load(config: ModelNet10Config, progress: Progress = ignore) -> Splits:
    """Train, validation and test objects; clouds are centered and kept in the cache."""
    source = clouds.find(config.root)
    version = 2 if source.kind == "npz" else 1  # the first took no heed of the names of classes
    name = f"modelnet10-{cache.fingerprint(list(source.files), kind=source.kind, up=config.up, version=version)}"
    tensors = cache.prepared(name, lambda: make(config, source, progress))
    kept, apart = hold_out(len(tensors["train_labels"]), config.validation, seed=config.seed, where=config.root)
    everything = torch.arange(len(tensors["test_labels"]))
    train = _part(tensors, "train", config, kept, training=True)
    validation = _part(tensors, "train", config, apart)
    return Splits(train, validation, _part(tensors, "test", config, everything), clouds.CLASSES)


def make(config: ModelNet10Config, source: clouds.Clouds, progress: Progress = ignore) -> dict[str, Tensor]:
    """Clouds within the unit sphere, in half precision: a two-thousandth of the radius."""
    tensors = source.read(progress)
    shift = {"z": 0, "y": 1, "x": 2}[config.up]  # a cyclic change of the axes is a rotation
    for split in ("train", "test"):
        points = tensors[f"{split}_points"]
        done = []
        for start in range(0, len(points), _CHUNK):
            progress(f"centering objects to {split} on", start, len(points))
            done.append(centered(points[start : start + _CHUNK].float().roll(shift, dims=2)).half())
        tensors[f"{split}_points"] = torch.cat(done)
    return tensors


def draw_rotation(kind: Turn, random: torch.Generator) -> Tensor:
    """The identity; or a rotation about the vertical, or any at all, drawn uniformly."""
    if kind == "none":
        return torch.eye(3, dtype=torch.float64)
    if kind == "so3":
        return SO3.random_rotation(random)
    return SO3.rotation(2 * math.pi * float(torch.rand((), generator=random)), (0.0, 0.0, 1.0))


def jitter(points: Tensor, random: torch.Generator) -> Tensor:
    """A cloud stretched by 0.8 to 1 along each axis, shifted within the unit sphere, its points shaken by a
    hundredth of the radius."""
    stretch = 0.8 + 0.2 * torch.rand(3, generator=random)
    room = (1 - stretch.max()) / math.sqrt(3)
    shift = room * (2 * torch.rand(3, generator=random) - 1)
    return points * stretch + shift + 0.01 * torch.randn(points.shape, generator=random)


def _part(
    tensors: dict[str, Tensor], split: str, config: ModelNet10Config, chosen: Tensor, *, training: bool = False
) -> Voxels:
    numbers = chosen + (_TEST if split == "test" else 0)
    points, labels = tensors[f"{split}_points"][chosen], tensors[f"{split}_labels"][chosen]
    return Voxels(points, labels, numbers, config, training=training)
