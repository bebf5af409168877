"""Folders of one's own."""

import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from steerformer.data import DataError, FolderConfig, folder, load, read_file


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
    (tmp_path / "animals" / "notes.txt").write_text("files beside the classes do no harm")
    (tmp_path / "animals" / "cat" / "Thumbs.db").write_text("nor do files of other kinds")
    (tmp_path / "animals" / ".hidden").mkdir()
    return tmp_path / "animals"


def config(root, **settings):
    return FolderConfig(root=root, **{"size": 6} | settings)


def files_of(part):
    return [part.files[number] for number in part.numbers]


def test_samples_are_the_files_and_classes_the_folders(root):
    splits = load(config(root))
    assert splits.classes == ("cat", "dog", "emu")
    for part in (splits.train, splits.test):
        for (x, label), path in zip([part[i] for i in range(len(part))], files_of(part), strict=True):
            assert x.dtype == torch.float32 and x.shape == (1, 6, 6)
            assert path.parent.name == splits.classes[label]
            assert_close(x, read_file(path, size=6, channels=1), rtol=0, atol=3e-4)


def test_sets_are_disjoint_by_class_and_complete(root):
    splits = load(config(root, validation=5))
    sets = [set(files_of(part)) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in sets] == [19, 5, 6] and len(set().union(*sets)) == 30
    assert splits.test.labels.bincount().tolist() == [2, 2, 2]
    assert len(load(config(root, test=0)).test) == 0


def test_the_seed_draws_the_sets(root):
    one, again, other = (load(config(root, seed=seed)) for seed in (1, 1, 2))
    assert files_of(one.test) == files_of(again.test) != files_of(other.test)


def test_folders_of_splits_are_respected(tmp_path):
    for split, count in (("train", 4), ("validation", 2), ("test", 3)):
        for name in ("a", "b"):
            for number in range(count):
                write(tmp_path / split / name, f"{split}{number}")
    splits = load(config(tmp_path))
    for name, count in (("train", 8), ("validation", 4), ("test", 6)):
        part = getattr(splits, name)
        assert {path.parents[1].name for path in files_of(part)} == {name} and len(part) == count
    assert splits.classes == ("a", "b")
    (tmp_path / "test").rename(tmp_path / "elsewhere")
    splits = load(config(tmp_path))
    assert {path.parents[1].name for path in files_of(splits.test)} == {"train"}
    assert not set(files_of(splits.test)) & set(files_of(splits.train))


def test_volumes_are_read(tmp_path):
    for name in ("a", "b"):
        for number in range(3):
            write(tmp_path / name, f"{number}", kind="npy")
    splits = load(config(tmp_path, size=6))
    assert splits.train[0][0].shape == (1, 6, 6, 6)
    assert_close(splits.train[0][0], read_file(files_of(splits.train)[0], size=6, channels=1))


def test_a_changed_file_is_read_again(root):
    before = load(config(root, test=0)).train[0][0]
    write(root / "cat", "0", seed=1)
    assert (load(config(root, test=0)).train[0][0] - before).abs().max() > 0.1


def test_an_interrupted_check_goes_on_where_it_was(root, monkeypatch, cache_folder):
    monkeypatch.setattr(folder, "_CHUNK", 8)
    bad = root / "emu" / "5.png"
    good = bad.read_bytes()
    bad.write_bytes(good[:40])
    with pytest.raises(DataError, match=r"emu/5\.png cannot be read as an image"):
        load(config(root))
    assert list(cache_folder.glob("*.safetensors")) == []
    read, seen = folder.read_file, []
    monkeypatch.setattr(folder, "read_file", lambda path, **how: seen.append(path) or read(path, **how))
    with pytest.raises(DataError):
        load(config(root))
    assert len(seen) == 2  # the 24 files before are done


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda root: [path.unlink() for path in (root / "dog").iterdir()], "the class .*dog is empty"),
        (lambda root: write(root / "dog", "x", kind="npy"), r"0\.png is an image and .*x\.npy a volume"),
        (lambda root: write(root / "cat", "00", kind="npy"), r"1?\.png is an image and .*00\.npy a volume"),
    ],
)
def test_bad_folders_are_named(root, spoil, message, cache_folder):
    spoil(root)
    with pytest.raises(DataError, match=message):
        load(config(root))
    assert list(cache_folder.iterdir()) == []


def test_what_is_missing_is_said(tmp_path, root):
    with pytest.raises(DataError, match="folder needs a root"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        load(config(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="at least two classes, found only 'animals'"):
        load(config(tmp_path))
    with pytest.raises(DataError, match="at least two classes, found none"):
        load(config(root / "cat"))
    with pytest.raises(DataError, match=r"has 1 channels \(L\), expected 3"):
        load(config(root, channels=3))
    with pytest.raises(DataError, match="24 training samples, so fewer than 24"):
        load(config(root, validation=24))


def test_a_class_without_training_files_is_named(tmp_path):
    for split, names in (("train", "ab"), ("test", "abc")):
        for name in names:
            write(tmp_path / split / name, "1")
    with pytest.raises(DataError, match=r"test/c is a class that .*train does not have"):
        load(config(tmp_path))


def test_the_home_folder_may_be_written_short(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root.parent))
    assert len(load(config("~/animals")).train) == 24
