"""Data sets and splits: the base classes that all data sets share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from steerformer.data.seeding import seeded_generator, shuffled
from steerformer.io.errors import DataError

Progress = Callable[[str, int, int], None]
"""Called with a description, the number of items done, and the total."""


class SeededDataset(Dataset[tuple[Tensor, Any]]):
    """A data set whose random numbers depend on its seed, the epoch and the number of the sample in its source.

    Shuffling, workers and resuming therefore change nothing. With several ``passes`` in an epoch, each sample occurs as
    often, with augmentation of its own.

    Args:
        numbers: number of each sample in its source.
        seed: seed of the random numbers.
    """

    def __init__(self, numbers: Tensor, *, seed: int) -> None:
        self.numbers = numbers.long()
        self.seed = seed
        self.passes = 1
        self._pass = 0  # of the sample that is being read
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # seen by persistent workers

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draw new augmentation; sets without augmentation do not change."""
        self._epoch.fill_(epoch)

    def generator(self, index: int, *, fixed: bool = False) -> torch.Generator:
        """Random numbers of one sample, for this epoch or (``fixed``) for all epochs."""
        drawn = 0 if fixed else 1 + self.epoch * self.passes + self._pass
        return seeded_generator(self.seed, drawn, int(self.numbers[index]))

    def position(self, index: int) -> int:
        """Number of the sample, counted from the start; an ``IndexError`` if ``index`` is out of range."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        self._pass, sample = divmod(index % len(self), len(self.numbers))
        return sample

    def __len__(self) -> int:
        return self.passes * len(self.numbers)


class ClassificationDataset(SeededDataset, ABC):
    """Samples ``(x, label)``: ``x`` of shape (channels, \\*space) in float32, one class per sample.

    Args:
        labels: class of each sample.
        numbers: number of each sample in its source.
        seed: seed of the random numbers.
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
    """Training, validation and test sets, and the names of the classes. Validation and test sets never change."""

    train: SeededDataset
    validation: SeededDataset
    test: SeededDataset
    classes: tuple[str, ...]


def hold_out(count: int, validation: int, *, seed: int, where: object) -> tuple[Tensor, Tensor]:
    """Indices of the training and the validation samples, each in ascending order."""
    if validation >= count:
        raise DataError(
            f"{where} has {count} training samples, so validation must be less than {count}, got "
            f"validation={validation}."
        )
    order = shuffled(count, seed, 1)
    return order[validation:].sort().values, order[:validation].sort().values


def no_progress(what: str, done: int, total: int) -> None:
    """A :data:`Progress` callback that does nothing."""
