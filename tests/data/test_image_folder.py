"""Folders with one sub-folder per class."""

import shutil
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from steerformer.data import DataError, FolderConfig, image_folder, load, read_sample


def write(root, name, *, seed=0, kind="png"):
    path = root / f"{name}.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(zlib.crc32(f"{path.parent.name}/{name}".encode()) + seed)
    if kind == "npy":
        np.save(path, random.normal(size=(6, 6, 6)).astype(np.float32))
    else:
        Image.fromarray(random.integers(0, 256, size=(6, 6)).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def root(tmp_path):
    for name in ("cat", "dog", "emu"):
        for number in range(10):
            write(tmp_path / "animals" / name, f"{number}")
    (tmp_path / "animals" / "notes.txt").write_text("files next to the classes are ignored")
    (tmp_path / "animals" / "cat" / "Thumbs.db").write_text("and so are files of other kinds")
    (tmp_path / "animals" / ".hidden").mkdir()
    return tmp_path / "animals"


def config(root, **settings):
    return FolderConfig(root=root, **{"size": 6} | settings)


def files_of(part):
    return [part.files[number] for number in part.numbers]


def test_folders_are_classes(root):
    splits = load(config(root))
    assert splits.classes == ("cat", "dog", "emu")
    for part in (splits.train, splits.test):
        for (x, label), path in zip([part[i] for i in range(len(part))], files_of(part), strict=True):
            assert x.dtype == torch.float32 and x.shape == (1, 6, 6)
            assert path.parent.name == splits.classes[label]
            assert_close(x, read_sample(path, size=6, channels=1), rtol=0, atol=3e-4)


def test_splits_are_stratified_disjoint_and_complete(root):
    splits = load(config(root, validation=0.25))
    sets = [set(files_of(part)) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in sets] == [18, 6, 6] and len(set().union(*sets)) == 30
    for part in (splits.validation, splits.test):
        assert part.labels.bincount().tolist() == [2, 2, 2]
    assert splits.test.labels.tolist() == [splits.classes.index(path.parent.name) for path in files_of(splits.test)]
    assert len(load(config(root, test=0)).test) == len(load(config(root)).validation) == 0


@pytest.mark.parametrize("fraction, expected", [(0.01, [1, 1, 0]), (0.5, [5, 1, 0]), (0.99, [9, 1, 0])])
def test_fraction_holds_out_at_least_one_file_per_class_and_never_all(tmp_path, fraction, expected):
    for name, count in (("a", 10), ("b", 2), ("c", 1)):
        for number in range(count):
            write(tmp_path / name, f"{number}")
    splits = load(config(tmp_path, validation=fraction, test=0))
    assert splits.validation.labels.bincount(minlength=3).tolist() == expected
    assert len(splits.train) + len(splits.validation) == 13


@pytest.mark.parametrize("fraction", [20, 1, -0.1])
def test_fractions_are_from_0_to_1(root, fraction):
    with pytest.raises(ValueError, match="validation"):
        config(root, validation=fraction)


def test_splits_depend_on_the_seed(root):
    one, again, other = (load(config(root, seed=seed)) for seed in (1, 1, 2))
    assert files_of(one.test) == files_of(again.test) != files_of(other.test)


def test_split_folders_are_used(tmp_path):
    for split, count in (("train", 4), ("validation", 2), ("test", 3)):
        for name in ("a", "b"):
            for number in range(count):
                write(tmp_path / split / name, f"{split}{number}")
    splits = load(config(tmp_path))
    for name, count in (("train", 8), ("validation", 4), ("test", 6)):
        part = getattr(splits, name)
        assert {path.parents[1].name for path in files_of(part)} == {name} and len(part) == count
    assert splits.classes == ("a", "b")
    shutil.rmtree(tmp_path / "test")
    splits = load(config(tmp_path))
    assert {path.parents[1].name for path in files_of(splits.test)} == {"train"}
    assert not set(files_of(splits.test)) & set(files_of(splits.train))


def write_splits(root, *names):
    for split in names:
        for name in ("a", "b"):
            for number in range(2):
                write(root / split / name, f"{split}{number}")
    return root


@pytest.mark.parametrize("name", ["val", "valid"])
def test_validation_folder_may_have_a_short_name(tmp_path, name):
    splits = load(config(write_splits(tmp_path, "train", name, "test")))
    assert {path.parents[1].name for path in files_of(splits.validation)} == {name}
    assert len(splits.train) == len(splits.validation) == 4


def test_other_folders_next_to_train_are_rejected(tmp_path):
    with pytest.raises(DataError, match=r"testing is next to .*train, but is not one of train, validation, val, valid"):
        load(config(write_splits(tmp_path / "x", "train", "testing")))
    with pytest.raises(DataError, match=r"val and .*validation are both for validation"):
        load(config(write_splits(tmp_path / "y", "train", "val", "validation")))
    write(write_splits(tmp_path / "z", "train") / "test", "unsorted")
    with pytest.raises(DataError, match=r"test should have a sub-folder for each class, as .*train has"):
        load(config(tmp_path / "z"))


def test_class_may_be_called_train(tmp_path):
    for name in ("train", "car", "boat"):
        write(tmp_path / name, "1")
    assert load(config(tmp_path, test=0)).classes == ("boat", "car", "train")


@pytest.mark.parametrize("split", ["val", "test"])
def test_same_file_in_two_splits_is_rejected(tmp_path, split, cache_folder):
    root = write_splits(tmp_path, "train", "val", "test")
    source, copy = root / "train" / "a" / "train1.png", root / split / "b" / "copy.png"
    copy.write_bytes(source.read_bytes())
    with pytest.raises(
        DataError, match=rf"a/train1\.png and .*{split}/b/copy\.png are the same file, in train and in {split}"
    ):
        load(config(root))
    assert list(cache_folder.iterdir()) == []
    copy.rename(root / "train" / "b" / "copy.png")  # twice in one split is not a leak
    assert len(load(config(root)).train) == 5


def test_volumes_are_read(tmp_path):
    for name in ("a", "b"):
        for number in range(3):
            write(tmp_path / name, f"{number}", kind="npy")
    for normalize in ("none", "std"):
        splits = load(config(tmp_path, normalize=normalize))
        assert splits.train[0][0].shape == (1, 6, 6, 6)
        expected = read_sample(files_of(splits.train)[0], size=6, channels=1, normalize=normalize)
        assert_close(splits.train[0][0], expected)


def test_changed_files_are_read_again(root):
    before = load(config(root, test=0)).train[0][0]
    write(root / "cat", "0", seed=1)
    assert (load(config(root, test=0)).train[0][0] - before).abs().max() > 0.1


def test_interrupted_reading_resumes(root, monkeypatch):
    monkeypatch.setattr(image_folder, "_CHUNK", 8)
    read, seen = image_folder.read_sample, []

    def interrupted(path, **options):
        if path.parent.name == "emu" and path.stem == "5":
            raise KeyboardInterrupt
        return read(path, **options)

    monkeypatch.setattr(image_folder, "read_sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(config(root))
    monkeypatch.setattr(image_folder, "read_sample", lambda path, **options: seen.append(path) or read(path, **options))
    assert len(load(config(root)).train) == 24
    assert len(seen) == 6  # the first 24 files are cached


def test_damaged_file_leaves_no_cache(root, monkeypatch, cache_folder):
    monkeypatch.setattr(image_folder, "_CHUNK", 8)
    bad = root / "emu" / "5.png"
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(DataError, match=r"emu/5\.png cannot be read as an image"):
        load(config(root))
    assert list(cache_folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda root: [path.unlink() for path in (root / "dog").iterdir()], "the class .*dog is empty"),
        (lambda root: write(root / "dog", "x", kind="npy"), r"0\.png is an image and .*x\.npy a volume"),
        (lambda root: write(root / "cat", "00", kind="npy"), r"1?\.png is an image and .*00\.npy a volume"),
    ],
)
def test_invalid_folders_are_named(root, damage, message, cache_folder):
    damage(root)
    with pytest.raises(DataError, match=message):
        load(config(root))
    assert list(cache_folder.iterdir()) == []


def test_missing_folders_are_named(tmp_path, root):
    with pytest.raises(DataError, match="folder needs a root"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        load(config(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="at least two classes, found only 'animals'"):
        load(config(tmp_path))
    with pytest.raises(DataError, match="at least two classes, found none"):
        load(config(root / "cat"))
    with pytest.raises(DataError, match=r"has 1 channels \(L\), expected 2"):
        load(config(root, channels=2))


def test_class_without_training_files_is_rejected(tmp_path):
    for split, names in (("train", "ab"), ("test", "abc")):
        for name in names:
            write(tmp_path / split / name, "1")
    with pytest.raises(DataError, match=r"test/c is a class that .*train does not have"):
        load(config(tmp_path))


def test_tilde_is_expanded(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root.parent))
    assert len(load(config("~/animals")).train) == 24
