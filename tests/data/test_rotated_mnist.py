"""Rotated MNIST: angles, splits, augmentation and random numbers."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from data.makers import write_amat, write_idx
from steerformer import SO2, FieldType
from steerformer.data import DataError, RotatedMNISTConfig, load
from steerformer.data.seeding import seeded_generator


def config(root, **options):
    return RotatedMNISTConfig(root=root, **options)


def samples(part):
    return [part[index] for index in range(len(part))]


def identities(part):
    return set(part.numbers.tolist())


def test_every_digit_is_rotated_by_its_angle(tmp_path):
    """Oracle: the upright digits, rotated one by one as fields."""
    arrays = write_idx(tmp_path)
    pool = torch.from_numpy(np.concatenate([arrays[0], arrays[2]])).float() / 255
    labels = np.concatenate([arrays[1], arrays[3]])
    splits = load(config(tmp_path, seed=3))
    angles = 2 * math.pi * torch.rand(40, generator=seeded_generator(3, 2), dtype=torch.float64)
    for part in (splits.train, splits.test):
        for number, (x, label) in zip(part.numbers.tolist(), samples(part), strict=True):
            expected = FieldType.image(SO2, 1).rotate(pool[number][None, None], SO2.rotation(float(angles[number])))
            assert label == labels[number]
            assert_close(x, expected[0], rtol=0, atol=0.5 / 255 + 1e-5)


def test_samples_have_the_expected_shape_and_type(tmp_path):
    write_idx(tmp_path)
    splits = load(config(tmp_path, validation=5))
    x, label = splits.train[0]
    assert x.shape == (1, 28, 28) and x.dtype == torch.float32 and isinstance(label, int)
    assert splits.train.labels.dtype == torch.int64
    assert splits.classes == tuple("0123456789")
    assert x.min() >= 0 and 0.5 < x.max() <= 1 and x[0, 0, 0] == 0
    with pytest.raises(IndexError):
        splits.train[len(splits.train)]
    assert_close(splits.train[-1], splits.train[len(splits.train) - 1])


def test_splits_are_disjoint_and_have_the_configured_sizes(tmp_path):
    write_idx(tmp_path)
    splits = load(config(tmp_path, train=20, test=15, validation=6))
    sets = [identities(part) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in sets] == [14, 6, 15]
    assert len(set().union(*sets)) == 35


def test_test_set_does_not_depend_on_the_training_size(tmp_path):
    write_idx(tmp_path)
    few, many = load(config(tmp_path, train=5, test=10)), load(config(tmp_path, train=25, test=10))
    assert_close(samples(few.test), samples(many.test), rtol=0, atol=0)
    assert identities(few.train) < identities(many.train)


def test_default_sizes_fit_the_source(tmp_path):
    write_idx(tmp_path)
    assert [len(part) for part in (load(config(tmp_path)).train, load(config(tmp_path)).test)] == [32, 8]
    assert len(load(config(tmp_path, train=10)).test) == 8
    assert len(load(config(tmp_path, test=30)).train) == 10


def test_digits_depend_on_the_seed(tmp_path, monkeypatch):
    write_idx(tmp_path)
    one = load(config(tmp_path, seed=1))
    torch.manual_seed(99)  # the global generator is not used
    monkeypatch.setenv("STEERFORMER_CACHE", str(tmp_path / "another"))
    again, other = load(config(tmp_path, seed=1)), load(config(tmp_path, seed=2))
    assert_close(samples(one.train), samples(again.train), rtol=0, atol=0)
    assert identities(one.train) != identities(other.train)


def test_upright_digits_are_unchanged(tmp_path):
    images = write_idx(tmp_path)[0]
    splits = load(config(tmp_path, train_rotation="none"))
    rotated = load(config(tmp_path))
    for number, (x, _) in zip(splits.train.numbers.tolist(), samples(splits.train), strict=True):
        if number < 30:
            assert_close(x[0], torch.from_numpy(images[number]) / 255, rtol=0, atol=1e-7)
    assert_close(samples(splits.test), samples(rotated.test), rtol=0, atol=0)
    gaps = [float((a - b).abs().max()) for (a, _), (b, _) in zip(splits.train, rotated.train, strict=True)]
    assert sorted(gaps)[16] > 0.3  # some angles are small, but not half of them


@pytest.mark.parametrize("augment", ["rotate", "elastic"])
def test_augmentation_depends_on_seed_epoch_and_sample_only(tmp_path, augment):
    write_idx(tmp_path)
    splits = load(config(tmp_path, augment=augment, validation=4))
    first = samples(splits.train)
    backwards = [splits.train[index] for index in reversed(range(len(splits.train)))][::-1]
    assert_close(first, backwards, rtol=0, atol=0)
    splits.train.set_epoch(1)
    assert all((a - b).abs().max() > 1e-3 for (a, _), (b, _) in zip(first, samples(splits.train), strict=True))
    splits.train.set_epoch(0)
    assert_close(first, samples(splits.train), rtol=0, atol=0)
    larger = load(config(tmp_path, augment=augment))
    place = larger.train.numbers.tolist().index(int(splits.train.numbers[3]))
    assert_close(larger.train[place], splits.train[3], rtol=0, atol=0)


@pytest.mark.parametrize("augment", ["rotate", "elastic"])
def test_validation_and_test_digits_are_not_augmented(tmp_path, augment):
    write_idx(tmp_path)
    splits = load(config(tmp_path, augment=augment, validation=4))
    plain = load(config(tmp_path, validation=4))
    for part in ("validation", "test"):
        getattr(splits, part).set_epoch(5)
        assert_close(samples(getattr(splits, part)), samples(getattr(plain, part)), rtol=0, atol=0)


def test_persistent_workers_see_the_next_epoch(tmp_path):
    write_idx(tmp_path)
    train = load(config(tmp_path, augment="rotate")).train
    loader = torch.utils.data.DataLoader(train, batch_size=32, num_workers=1, persistent_workers=True)
    for epoch in (0, 3):
        train.set_epoch(epoch)
        ((x, _),) = list(loader)
        assert_close(x, torch.stack([sample for sample, _ in samples(train)]), rtol=0, atol=0)


def test_amat_files_are_unchanged(tmp_path):
    a, b, c, d = write_amat(tmp_path)
    splits = load(config(tmp_path))
    for part, images, labels in ((splits.train, a, b), (splits.test, c, d)):
        assert part.labels.tolist() == labels.tolist()
        assert_close(torch.stack([x[0] for x, _ in samples(part)]), torch.from_numpy(images) / 255, rtol=0, atol=1e-6)
    assert len(load(config(tmp_path, train=3, test=2)).test) == 2


def test_digits_are_cached_and_made_again_if_damaged(tmp_path, cache_folder):
    write_idx(tmp_path)
    steps = []
    first = samples(load(config(tmp_path), lambda *step: steps.append(step)).train)
    assert ("rotating train digits", 0, 32) in steps
    load(config(tmp_path), lambda *step: pytest.fail("nothing is left to do"))
    (cached,) = cache_folder.glob("*.safetensors")
    data = bytearray(cached.read_bytes())
    data[-1] ^= 1
    cached.write_bytes(data)
    assert_close(samples(load(config(tmp_path)).train), first, rtol=0, atol=0)
    assert cached.read_bytes() != bytes(data)


def test_impossible_configurations_are_rejected(tmp_path):
    write_amat(tmp_path / "amat")
    with pytest.raises(DataError, match="already rotated"):
        load(config(tmp_path / "amat", test_rotation="none"))
    with pytest.raises(DataError, match="has 6 digits for train, too few for train=7; lower it"):
        load(config(tmp_path / "amat", train=7))
    with pytest.raises(DataError, match="6 training samples, so validation must be less than 6"):
        load(config(tmp_path / "amat", validation=6))
    write_idx(tmp_path / "idx")
    with pytest.raises(DataError, match="has 40 digits in all, too few for train=41"):
        load(config(tmp_path / "idx", train=41))
