"""Random numbers that depend on integer keys alone: the same on every run, in every order, in every process."""

import numpy as np
import torch
from torch import Tensor


def seeded_generator(*key: int) -> torch.Generator:
    """A generator seeded by ``key`` alone.

    Trailing zeros of a key of up to four numbers do not count: ``(0, 1)`` and ``(0, 1, 0)`` give the same numbers.
    This is kept, because changing it would change the digits and rotations of published results.
    """
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)  # 63 bits: torch reads seeds as signed


def shuffled(count: int, *key: int) -> Tensor:
    """0 to count - 1 in a random order that depends on ``key`` alone."""
    return torch.randperm(count, generator=seeded_generator(*key))
