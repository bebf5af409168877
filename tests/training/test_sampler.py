"""The batch sampler: samples of each step, process and accumulated part."""

import pytest
import torch

from steerformer.config import ConfigError
from steerformer.training.sampler import BatchSampler, mixed_seed


def epoch(batches, number=0, step=0):
    batches.start(number, step)
    return list(batches)


def test_epoch_takes_samples_once_and_drops_the_last_batch():
    batches = epoch(BatchSampler(23, 5, seed=0))
    assert [len(batch) for batch in batches] == [5] * 4
    taken = [i for batch in batches for i in batch]
    assert len(set(taken)) == 20 and set(taken) < set(range(23))


def test_order_depends_on_seed_and_epoch_only():
    first = epoch(BatchSampler(40, 8, seed=1), 3)
    torch.manual_seed(99)
    assert epoch(BatchSampler(40, 8, seed=1), 3) == first
    assert epoch(BatchSampler(40, 8, seed=1), 4) != first
    assert epoch(BatchSampler(40, 8, seed=2), 3) != first


def test_start_within_an_epoch_skips_finished_steps():
    batches = BatchSampler(40, 8, seed=1, accumulate=2)
    assert epoch(batches, 2, 3) == epoch(batches, 2)[6:]
    assert len(batches) == 10
    batches.start(2, 3)
    assert len(batches) == 4


@pytest.mark.parametrize(("processes", "accumulate"), [(2, 1), (1, 4), (2, 2), (4, 1)])
def test_processes_and_parts_together_see_the_same_batches(processes, accumulate):
    alone = epoch(BatchSampler(50, 8, seed=5), 1)
    shares = [
        epoch(BatchSampler(50, 8, seed=5, processes=processes, process=process, accumulate=accumulate), 1)
        for process in range(processes)
    ]
    for step, batch in enumerate(alone):
        parts = [share[step * accumulate + part] for share in shares for part in range(accumulate)]
        assert [i for part in parts for i in part] == batch


def test_batch_larger_than_the_data_is_rejected():
    with pytest.raises(ConfigError, match=r"batch_size is 50, but there are only 30 samples"):
        BatchSampler(30, 50, seed=0)


def test_error_names_the_largest_possible_batch():
    with pytest.raises(ConfigError, match=r"; set training.batch_size=24 or less\.$"):
        BatchSampler(24, 50, seed=0)
    with pytest.raises(ConfigError, match=r"; set training.batch_size=20 or less\.$"):
        BatchSampler(23, 50, seed=0, processes=2, accumulate=2)


def test_batch_must_be_divisible_by_processes():
    with pytest.raises(ConfigError, match=r"batch_size 10 is not divisible by 4 processes times 1 accumulated parts"):
        BatchSampler(30, 10, seed=0, processes=4)


def test_mixed_seeds_are_distinct():
    seeds = {mixed_seed(a, b) for a in range(20) for b in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
