"""A full disk: one line, and no partial file."""

import errno
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from steerformer.runs import read_run_folder
from training.command import error_line

pytestmark = pytest.mark.usefixtures("unchecked")


def partial_files(folder):
    return [path.name for path in folder.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]


@contextmanager
def largest_file(size):
    """The system refuses to write more into a file, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_model_that_does_not_fit_is_not_written(file, finished, tmp_path):
    assert (finished / "best.safetensors").stat().st_size > 3_000
    with largest_file(3_000):
        message = error_line(file, "--out", tmp_path / "run")
    assert "best.safetensors: " in message and "File too large" in message
    assert not (tmp_path / "run" / "best.safetensors").exists()
    assert partial_files(tmp_path) == []


def test_checkpoint_that_does_not_fit_leaves_the_previous_one(copy):
    before = (copy / "last.ckpt").read_bytes()
    with largest_file(20_000):
        assert "last.ckpt: File too large" in error_line(copy, "training.epochs=2", "--resume")
    assert (copy / "last.ckpt").read_bytes() == before
    assert partial_files(copy) == []
    assert read_run_folder(copy).model


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "best.safetensors", "metrics.csv", "last.ckpt"])
def test_full_disk_at_any_file_leaves_no_partial_file(file, tmp_path, monkeypatch, name):
    flush = os.fsync

    def fsync(descriptor):
        if name in Path(os.readlink(f"/proc/self/fd/{descriptor}")).name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    message = error_line(file, "--out", tmp_path / "run")
    assert "No space left on device" in message and str(tmp_path / "run") in message
    assert not (tmp_path / "run" / name).exists()
    assert partial_files(tmp_path) == []
    if name in ("config.yaml", "environment.json"):
        assert not (tmp_path / "run").exists()
