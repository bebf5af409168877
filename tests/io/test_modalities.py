"""Modalities in separate files: NAME_0000, NAME_0001, ... are one scan."""

from pathlib import Path

import numpy as np
import pytest

from steerformer.data import DataError
from steerformer.io.modalities import group_modalities, match_modalities, output_name


def test_modalities_of_a_scan_are_grouped():
    files = [Path(name) for name in ("b_0001.nii", "x/a_0001.nii.gz", "x/a_0000.nii.gz", "y/a_0000.nii.gz", "c.nii")]
    grouped = group_modalities(files, 2)
    assert grouped == [(files[0],), (files[2], files[1]), (files[3],), (files[4],)]
    assert [output_name(scan) for scan in grouped] == [
        ("b_0001", ".nii"), ("a", ".nii.gz"), ("a_0000", ".nii.gz"), ("c", ".nii"),
    ]  # fmt: skip
    assert group_modalities(files, 1) == [(file,) for file in files]
    numbered = [Path(f"case_{i:04d}.nii") for i in range(5)]
    assert group_modalities(numbered, 4) == [(file,) for file in numbered]  # more than the channels: numbered scans


def test_4d_volumes_are_not_modalities(tmp_path):
    files = [tmp_path / f"case_{i:04d}.npy" for i in range(2)]
    for file in files:
        np.save(file, np.zeros((3, 3, 3, 2)))
    assert group_modalities(files, 2) == [(file,) for file in files]
    np.save(files[0], np.zeros((3, 3, 3)))
    assert group_modalities(files, 2) == [tuple(files)]


def test_a_file_named_twice_counts_once():
    one, two = Path("a_0000.nii"), Path("a_0001.nii")
    assert group_modalities([one, one], 2) == [(one,)] == group_modalities([one, one], 1)
    assert group_modalities([two, one, two], 2) == [(one, two)]


def test_modalities_are_matched_with_label_maps():
    images = {f"{name}_000{i}": Path(f"{name}_000{i}.nii") for name in "ab" for i in range(2)}
    matched = match_modalities(images, ["a", "b"])
    assert matched == {name: (images[f"{name}_0000"], images[f"{name}_0001"]) for name in "ab"}
    assert match_modalities(images, list(images)) == {stem: (path,) for stem, path in images.items()}
    del images["b_0001"]
    with pytest.raises(DataError, match=r"^b_0000\.nii has modalities 0000, but lacks 0001: every case needs the same"):
        match_modalities(images, ["a", "b"])
