"""The cache of preprocessed data: files are complete or absent."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from steerformer.data import DataError, cache

X = {"x": torch.arange(6).reshape(2, 3), "y": torch.rand(4)}


def test_tensors_are_written_and_read(tmp_path):
    cache.write(tmp_path / "deep" / "a.safetensors", X)
    assert_close(cache.read(tmp_path / "deep" / "a.safetensors"), X)
    assert cache.read(tmp_path / "b.safetensors") is None


@pytest.mark.parametrize("damage", ["truncated", "no checksum", "other checksum"])
def test_damaged_files_are_made_again(cache_folder, damage):
    cache.cached("a", lambda: {"x": torch.zeros(3)})
    path = cache_folder / "a.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "no checksum":
        path.with_suffix(".sha256").unlink()
    else:
        path.with_suffix(".sha256").write_text("0" * 64)
    assert_close(cache.cached("a", lambda: {"x": torch.ones(3)})["x"], torch.ones(3))
    assert_close(cache.cached("a", lambda: pytest.fail("made twice"))["x"], torch.ones(3))


def test_full_disk_leaves_no_file(cache_folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write .*a\.safetensors: No space left .*; set STEERFORMER_CACHE"):
        cache.cached("a", lambda: X)
    assert list(cache_folder.iterdir()) == []


def test_unwritable_cache_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEERFORMER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot (read|write) .*file/cache/a\.safetensors: Not a directory"):
        cache.cached("a", lambda: X)


def test_parts_are_concatenated_in_order(cache_folder):
    steps = []
    made = cache.cached_in_parts(
        "p", 7, 3, lambda start, stop: {"x": torch.arange(start, stop)}, "counting", lambda *step: steps.append(step)
    )
    assert made["x"].tolist() == list(range(7))
    assert steps == [("counting", 0, 7), ("counting", 3, 7), ("counting", 6, 7)]
    assert sorted(path.name for path in cache_folder.iterdir()) == ["p.safetensors", "p.sha256"]


@pytest.mark.parametrize("error, left", [(DataError("bad"), 0), (KeyboardInterrupt(), 2), (MemoryError(), 2)])
def test_parts_are_kept_after_interruption_but_not_after_bad_data(cache_folder, error, left):
    def make(start, stop):
        if start == 6:
            raise error
        return {"x": torch.arange(start, stop)}

    with pytest.raises(type(error)):
        cache.cached_in_parts("p", 9, 3, make, "counting", lambda *step: None)
    assert len(list(cache_folder.rglob("*.safetensors"))) == left
    assert (cache_folder / "p.parts").exists() == bool(left)


def test_another_process_may_finish_first(cache_folder, monkeypatch):
    write, removed = cache.write_atomic, []

    def late(path, content):
        if path.suffix == ".sha256" and path.parent.name == "p.parts" and len(removed) < 2:
            removed.append(path)
            shutil.rmtree(path.parent)  # as the other process does when it is done
        write(path, content)

    monkeypatch.setattr(cache, "write_atomic", late)
    made = cache.cached_in_parts("p", 7, 3, lambda a, b: {"x": torch.arange(a, b)}, "counting", lambda *step: None)
    assert made["x"].tolist() == list(range(7)) and len(removed) == 2
    assert sorted(path.name for path in cache_folder.iterdir()) == ["p.safetensors", "p.sha256"]


def test_fingerprints_depend_on_files_and_parameters(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    names = {cache.fingerprint([file], size=size) for size in (1, 2, 1)}
    assert len(names) == 2
    file.write_text("22")
    assert cache.fingerprint([file], size=1) not in names


def test_default_folder_is_in_the_users_cache(monkeypatch):
    monkeypatch.delenv("STEERFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere/steerformer")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "steerformer"
