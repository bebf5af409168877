"""The batch sampler: which samples a step takes depends on seed, epoch and step alone."""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import Sampler

from steerformer.config import ConfigError


class BatchSampler(Sampler[list[int]]):
    """Indices for one process, one accumulated part after the other.

    Samples are shuffled in each epoch; an incomplete last batch is dropped. Each batch is divided among the processes,
    and each share into ``accumulate`` parts: together, processes see the batches that one process would see.
    """

    def __init__(
        self, samples: int, batch_size: int, *, seed: int, processes: int = 1, process: int = 0, accumulate: int = 1
    ) -> None:
        if samples < batch_size:
            shares = processes * accumulate
            hint = f"; set training.batch_size={samples // shares * shares} or less." if samples >= shares else "."
            raise ConfigError(
                f"training.batch_size is {batch_size}, but there are only {samples} samples to train on{hint}"
            )
        if batch_size % (processes * accumulate):
            raise ConfigError(
                f"training.batch_size {batch_size} is not divisible by {processes} processes times {accumulate} "
                f"accumulated parts."
            )
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.processes, self.process, self.accumulate = processes, process, accumulate
        self.steps = samples // batch_size
        self.epoch = self.step = 0

    def start(self, epoch: int, step: int = 0) -> None:
        """Start the next iteration at this epoch and step."""
        self.epoch, self.step = epoch, step

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, self.epoch))
        order = torch.randperm(self.samples, generator=generator)[: self.steps * self.batch_size]
        parts = order.view(self.steps, self.processes, self.accumulate, -1)[self.step :, self.process]
        yield from parts.flatten(0, 1).tolist()

    def __len__(self) -> int:
        return (self.steps - self.step) * self.accumulate


def mixed_seed(*numbers: int) -> int:
    """Hash several numbers into one seed, so that neighboring ones are unrelated."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
