"""What all data sets share: samples, splits, their random numbers, and one kind of error."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

Progress = Callable[[str, int, int], None]
"""Told now and then what is being done, how much of it is done, and how much there is."""


class DataError(ValueError):
    """Data that cannot be used; the message is one line that names the file or folder."""


class Numbered(Dataset[tuple[Tensor, Any]]):
    """Samples of any kind. What is random about one is drawn from its seed, the epoch and its number in the source:
    order, workers and resuming change nothing.

    Args:
        numbers: each sample's number in its source, which outlives shuffling and splitting.
        seed: of the random numbers.
    """

    def __init__(self, numbers: Tensor, *, seed: int) -> None:
        self.numbers = numbers.long()
        self.seed = seed
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # seen by workers that outlive an epoch

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draw augmentation anew; sets without augmentation stay what they are."""
        self._epoch.fill_(epoch)

    def generator(self, index: int, *, fixed: bool = False) -> torch.Generator:
        """Random numbers of one sample, in this epoch or (``fixed``) in all."""
        key = (self.seed, 0 if fixed else 1 + self.epoch, int(self.numbers[index]))
        return generator(*key)

    def position(self, index: int) -> int:
        """``index`` counted from the start; an ``IndexError`` if there is none such."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return index % len(self)

    def __len__(self) -> int:
        return len(self.numbers)


class Samples(Numbered, ABC):
    """Samples ``(x, label)``: ``x`` of shape (channels, \\*space) in float32.

    Args:
        labels: the class of each sample.
        numbers: each sample's number in its source, which outlives shuffling and splitting.
        seed: of the random numbers.
    """

    def __init__(self, labels: Tensor, numbers: Tensor, *, seed: int) -> None:
        super().__init__(numbers, seed=seed)
        self.labels = labels.long()

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = self.position(index)
        return self.sample(index), int(self.labels[index])

    @abstractmethod
    def sample(self, index: int) -> Tensor:
        """The input of sample ``index``."""


@dataclass(frozen=True)
class Splits:
    """Samples to train, validate and test on, and the names of the classes. Validation and test never change."""

    train: Numbered
    validation: Numbered
    test: Numbered
    classes: tuple[str, ...]


def generator(*key: int) -> torch.Generator:
    """Random numbers that depend on ``key`` alone.

    Zeros at the end of a key of up to four numbers do not count: ``(0, 1)`` and ``(0, 1, 0)`` draw the same. This
    stays, as other numbers would mean other digits and rotations than those that results were measured with.
    """
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)  # 63 bits: torch reads seeds as signed


def shuffled(count: int, *key: int) -> Tensor:
    """0 to count - 1 in a random order that depends on ``key`` alone."""
    return torch.randperm(count, generator=generator(*key))


def hold_out(count: int, validation: int, *, seed: int, where: object) -> tuple[Tensor, Tensor]:
    """Positions to train on and to validate on, each in ascending order."""
    if validation >= count:
        raise DataError(f"{where} has {count} training samples, so fewer than {count} can be for validation, "
                        f"got validation={validation}.")  # fmt: skip
    order = shuffled(count, seed, 1)
    return order[validation:].sort().values, order[:validation].sort().values


def ignore(what: str, done: int, total: int) -> None:
    """The progress of those who do not watch."""
