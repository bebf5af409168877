"""Which samples a step takes."""

import pytest
import torch

from steerformer.config import ConfigError
from steerformer.train.batches import Batches, mixed_seed


def epoch(batches, number=0, step=0):
    batches.start(number, step)
    return list(batches)


def test_an_epoch_takes_every_sample_once_and_drops_the_rest():
    batches = epoch(Batches(23, 5, seed=0))
    assert [len(batch) for batch in batches] == [5] * 4
    taken = [i for batch in batches for i in batch]
    assert len(set(taken)) == 20 and set(taken) < set(range(23))


def test_seed_and_epoch_decide_and_nothing_else():
    first = epoch(Batches(40, 8, seed=1), 3)
    torch.manual_seed(99)
    assert epoch(Batches(40, 8, seed=1), 3) == first
    assert epoch(Batches(40, 8, seed=1), 4) != first
    assert epoch(Batches(40, 8, seed=2), 3) != first


def test_a_start_within_an_epoch_leaves_out_what_was_taken():
    batches = Batches(40, 8, seed=1, accumulate=2)
    assert epoch(batches, 2, 3) == epoch(batches, 2)[6:]
    assert len(batches) == 10
    batches.start(2, 3)
    assert len(batches) == 4


@pytest.mark.parametrize(("processes", "accumulate"), [(2, 1), (1, 4), (2, 2), (4, 1)])
def test_processes_and_parts_together_see_the_batches_of_one(processes, accumulate):
    alone = epoch(Batches(50, 8, seed=5), 1)
    shares = [
        epoch(Batches(50, 8, seed=5, processes=processes, process=process, accumulate=accumulate), 1)
        for process in range(processes)
    ]
    for step, batch in enumerate(alone):
        parts = [share[step * accumulate + part] for share in shares for part in range(accumulate)]
        assert [i for part in parts for i in part] == batch


def test_more_samples_than_there_are_cannot_be_taken():
    with pytest.raises(ConfigError, match=r"batch_size is 50, but there are only 30 samples"):
        Batches(30, 50, seed=0)


def test_the_largest_batch_that_can_be_taken_is_named():
    with pytest.raises(ConfigError, match=r"; set training.batch_size=24 or less\.$"):
        Batches(24, 50, seed=0)
    with pytest.raises(ConfigError, match=r"; set training.batch_size=20 or less\.$"):
        Batches(23, 50, seed=0, processes=2, accumulate=2)


def test_batches_have_to_be_shared_equally():
    with pytest.raises(ConfigError, match=r"batch_size 10 cannot be shared equally by 4 processes with 1 parts"):
        Batches(30, 10, seed=0, processes=4)


def test_neighboring_seeds_have_nothing_in_common():
    seeds = {mixed_seed(a, b) for a in range(20) for b in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
