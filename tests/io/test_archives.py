"""Arrays in .npz files, and errors that name the file."""

import os

import numpy as np
import pytest

from steerformer.data import DataError
from steerformer.io.archives import array_names, read_npz


def test_arrays_are_read_by_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), y=np.ones((2, 2)))
    assert array_names(path) == {"x", "y"}
    assert read_npz(path, ("x",))["x"].tolist() == [0, 1, 2] and list(read_npz(path, ("y",))) == ["y"]
    with pytest.raises(DataError, match=r"a\.npz lacks z; it holds x, y\.$"):
        read_npz(path, ("x", "z"))


def test_truncated_and_foreign_archives_are_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(1000))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"a\.npz is not an \.npz file, or is truncated"):
        read_npz(path, ("x",))
    path.write_text("text")
    with pytest.raises(DataError, match=r"a\.npz is not an \.npz file"):
        array_names(path)


def test_pickled_objects_are_rejected(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}]))
    with pytest.raises(DataError, match=r"a\.npz is damaged, or holds more than plain arrays of numbers"):
        read_npz(tmp_path / "a.npz", ("x",))


def test_missing_and_unreadable_archives_are_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*a\.npz: No such file"):
        array_names(tmp_path / "a.npz")
    if os.geteuid() != 0:
        np.savez(tmp_path / "a.npz", x=np.arange(3))
        (tmp_path / "a.npz").chmod(0)
        with pytest.raises(DataError, match=r"cannot read .*a\.npz: Permission denied"):
            array_names(tmp_path / "a.npz")
