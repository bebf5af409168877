"""Volumes: channels first, and errors that name the file, whatever the damage."""

import gzip
import logging
import os

import nibabel
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from steerformer.data import DataError
from steerformer.io.nifti import as_channels, read_volume

SUFFIXES = ("nii", "nii.gz", "npy")
EMPTY = np.zeros((4, 4, 4), np.float32)


def write(path, array):
    if path.name.endswith("npy"):
        np.save(path, array)
    else:
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)


def read(path, channels=1):
    return as_channels(read_volume(path)[0], channels, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_volumes_are_read_exactly(tmp_path, suffix):
    array = np.random.default_rng(0).normal(size=(5, 5, 5)).astype(np.float32)
    write(tmp_path / f"a.{suffix}", array)
    assert_close(read(tmp_path / f"a.{suffix}"), torch.from_numpy(array)[None])


def test_channels_are_on_the_last_axis(tmp_path):
    array = np.random.default_rng(0).normal(size=(3, 3, 3, 2)).astype(np.float32)
    write(tmp_path / "a.npy", array)
    assert_close(read(tmp_path / "a.npy", 2), torch.from_numpy(array).movedim(3, 0))


@pytest.mark.parametrize(
    "array, message",
    [
        (np.full((4, 4, 4), np.nan), "holds NaN or infinity"),
        (np.where(np.arange(4) == 2, np.inf, EMPTY), "holds NaN or infinity"),
        (np.zeros((4, 4)), r"has shape \(4, 4\), expected three spatial axes"),
        (np.zeros((4, 4, 4, 3)), "has 3 channels .*, expected 1"),
        (np.zeros((2, 2, 2, 2, 2)), r"has shape \(2, 2, 2, 2, 2\), expected three spatial axes"),
        (np.zeros((0, 4, 4)), r"has shape \(0, 4, 4\), expected three spatial axes"),
        (np.zeros((4, 4, 4), complex), "holds complex128, expected real numbers"),
        (np.array(["a"]), "holds <U1, expected real numbers"),
    ],
)
def test_invalid_volumes_are_named(tmp_path, array, message):
    write(tmp_path / "bad.npy", array)
    with pytest.raises(DataError, match=rf"bad\.npy {message}"):
        read(tmp_path / "bad.npy")
    if array.dtype.kind == "f" and array.size:
        write(tmp_path / "bad.nii.gz", array)
        with pytest.raises(DataError, match=rf"bad\.nii\.gz {message}"):
            read(tmp_path / "bad.nii.gz")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("keep", [0.7, 0.02, 0])
def test_truncated_volumes_are_named(tmp_path, suffix, keep):
    path = tmp_path / f"cut.{suffix}"
    write(path, np.random.default_rng(0).normal(size=(16, 16, 16)).astype(np.float32))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as"):
        read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_headers_are_named(tmp_path, suffix, capfd):
    random = np.random.default_rng(0)
    path = tmp_path / f"bad.{suffix}"
    write(path, random.normal(size=(5, 4, 3)).astype(np.float32))
    good = gzip.decompress(path.read_bytes()) if suffix == "nii.gz" else path.read_bytes()
    messages = []
    for _ in range(50):
        bad = bytearray(good)
        for offset in random.integers(0, 128 if suffix == "npy" else 352, size=random.integers(1, 6)):
            bad[offset] = random.integers(0, 256)
        path.write_bytes(gzip.compress(bad) if suffix == "nii.gz" else bad)
        try:
            assert read(path).isfinite().all()
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 5 and all(f"bad.{suffix} " in line and "\n" not in line for line in messages)
    assert capfd.readouterr() == ("", "")


def test_headers_that_raise_unusual_errors_are_named(tmp_path, capfd):
    """Regression: a syntax error in an .npy header, an affine of NaN, an unknown data type."""
    for name in ("a.npy", "a.nii", "b.nii"):
        write(tmp_path / name, EMPTY)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes().replace(b"(4, 4, 4)", b"(4, 4, 4 "))
    header = bytearray((tmp_path / "a.nii").read_bytes())
    header[280:328] = np.full(12, np.nan, np.float32).tobytes()  # the affine
    (tmp_path / "a.nii").write_bytes(header)
    header = bytearray((tmp_path / "b.nii").read_bytes())
    header[70:72] = b"\x07\x00"  # the data type
    (tmp_path / "b.nii").write_bytes(header)
    for name in ("a.npy", "a.nii", "b.nii"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as"):
            read(tmp_path / name)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("nibabel.global").disabled


def test_files_of_another_format_are_named(tmp_path):
    for name in ("a.nii", "a.npy"):
        (tmp_path / name).write_text("a text of some length, not a volume" * 20)
        with pytest.raises(DataError, match="cannot be read as"):
            read(tmp_path / name)
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(b"text" * 100))
    with pytest.raises(DataError, match=r"b\.nii\.gz cannot be read as NIfTI"):
        read(tmp_path / "b.nii.gz")
    np.save(tmp_path / "pickled.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"pickled\.npy cannot be read"):
        read(tmp_path / "pickled.npy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["a.nii", "a.npy"])
def test_unreadable_volumes_are_named(tmp_path, name):
    (tmp_path / name).write_text("")
    (tmp_path / name).chmod(0)
    with pytest.raises(DataError, match=r"cannot read .*Permission denied"):
        read(tmp_path / name)
