"""Random numbers that depend on integer keys only."""

import torch

from steerformer.data.seeding import seeded_generator, shuffled


def test_orders_are_permutations_that_depend_on_the_key():
    assert shuffled(20, 1, 0).sort().values.tolist() == list(range(20))
    assert shuffled(20, 1, 0).tolist() != shuffled(20, 0, 1).tolist()
    torch.manual_seed(99)  # the global generator is not used
    assert shuffled(20, 1, 0).tolist() == shuffled(20, 1, 0).tolist()


def test_generators_depend_on_the_key_only():
    first, again, other = (torch.rand(5, generator=seeded_generator(*key)) for key in ((3, 4), (3, 4), (4, 3)))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_trailing_zeros_of_short_keys_do_not_count():
    """Published results depend on it."""
    first, same = (torch.rand(5, generator=seeded_generator(*key)) for key in ((0, 1), (0, 1, 0)))
    assert torch.equal(first, same)
