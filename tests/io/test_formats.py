"""File formats by suffix."""

import pytest

from steerformer.data import DataError
from steerformer.io.formats import file_kind, require_kind, split_suffix


def test_file_kind_depends_on_the_suffix(tmp_path):
    names = {"a.PNG": "image", "b.nii.gz": "volume", "c.npy": "volume", "d.txt": None, ".e.png": None, "f.gz": None}
    assert {name: file_kind(tmp_path / name) for name in names} == names


def test_split_suffix_keeps_nii_gz_together():
    assert split_suffix("a.b.nii.gz") == ("a.b", ".nii.gz")
    assert split_suffix("a.b.PNG") == ("a.b", ".PNG")
    assert split_suffix("notes.txt") == ("notes.txt", "")


def test_missing_and_unknown_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*a\.png"):
        require_kind(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.txt is neither an image"):
        require_kind(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"is a folder; name the files in it"):
        require_kind(tmp_path)
