"""Atomic writes: a file is complete or absent."""

import errno
import json
import os

import pytest

from steerformer.io.atomic import write_atomic, write_json


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_new_files_have_default_permissions(tmp_path):
    plain_file = tmp_path / "plain"
    plain_file.write_text("x")
    write_atomic(tmp_path / "whole", "x")
    assert (tmp_path / "whole").stat().st_mode == plain_file.stat().st_mode


def test_json_is_written_and_replaced(tmp_path):
    for values in ({"a": [1, 2]}, {"b": None}):
        write_json(tmp_path / "a.json", values)
        assert json.loads((tmp_path / "a.json").read_text()) == values
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
