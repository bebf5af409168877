"""Label maps: class numbers on the grid of the scan, and errors that name the file."""

import numpy as np
import pytest
import torch
from PIL import Image

from data.scan_files import affine, blobs, numbers, photograph, write_nifti
from steerformer.data import DataError
from steerformer.io.labels import read_labels, validate_labels
from steerformer.io.scans import read_scan

TWO = ("background", "lesion")
THREE = ("background", "rim", "core")


@pytest.mark.parametrize("kind", ["right", "mirrored", "permuted", "oblique mirrored"])
def test_labels_are_read_on_the_grid_of_the_scan(tmp_path, kind):
    height, labels = blobs((8, 9, 10))
    scan = read_scan(write_nifti(tmp_path / "a.nii", height, affine(kind)))
    found = read_labels(write_nifti(tmp_path / "b.nii", labels, affine(kind)), scan, THREE)
    assert torch.equal(found, torch.from_numpy(np.ceil(scan.x[0].numpy() * 2 - 1e-9).astype(np.uint8)))


@pytest.mark.parametrize("kind", ["numbers", "palette", "bits", "color"])
def test_all_mask_encodings_are_read(tmp_path, kind):
    pixels, mask = photograph(0)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = Image.fromarray({"bits": mask > 0, "color": 255 * np.stack([mask] * 3, axis=-1)}.get(kind, mask))
    if kind == "palette":
        image.putpalette([0, 0, 0, 200, 30, 30])
    image.save(tmp_path / "b.png")
    assert torch.equal(read_labels(tmp_path / "b.png", read_scan(tmp_path / "a.png"), TWO), torch.from_numpy(mask))


@pytest.mark.parametrize("first", ["nii", "npy"])
def test_nifti_and_npy_files_are_not_mixed(tmp_path, first):
    """A NIfTI file is reoriented to RAS+; the orientation of an array is unknown."""
    array = numbers((5, 5, 5))
    nifti, plain = write_nifti(tmp_path / "a.nii", array, affine("mirrored")), tmp_path / "b.npy"
    np.save(plain, array)
    one, other = (nifti, plain) if first == "nii" else (plain, nifti)
    message = rf"{other.name} and .*{one.name} cannot be aligned: one is NIfTI"
    with pytest.raises(DataError, match=message):
        read_scan([one, other])
    with pytest.raises(DataError, match=message):
        read_labels(other, read_scan(one), TWO)
    assert read_scan([plain, plain]).x.shape == (2, 5, 5, 5)


def test_255_is_class_1_of_two_only():
    assert validate_labels(np.array([0, 255, 0]), "a.png", TWO).tolist() == [0, 1, 0]
    assert validate_labels(np.array([255.0]), "a.png", TWO).tolist() == [1]
    for labels, classes in (([0, 1, 255], TWO), ([0, 255], THREE)):
        with pytest.raises(DataError, match=r"a\.png holds labels 0, .*255, but there are \d classes \(0-\d\)"):
            validate_labels(np.array(labels), "a.png", classes)


@pytest.mark.parametrize(
    "array, message",
    [
        (
            np.array([0, 4, 1]),
            r"holds labels 0, 1, 4, but there are 3 classes \(0-2\); fix the file or.* classes=5\.$",
        ),
        (np.array([-1, 1]), r"holds labels -1, 1, but there are 3 classes \(0-2\); fix the file\.$"),
        (np.arange(9), r"holds labels 0, 1, 2, 3, 4, 5, \.\.\., but there are 3 classes"),
        (np.array([0, 0.5]), "holds 0.5, but labels are integers"),
        (np.array([0, np.nan]), "holds NaN or infinity"),
        (np.array(["x"]), "holds <U1, expected labels"),
    ],
)
def test_invalid_labels_are_named(array, message):
    with pytest.raises(DataError, match=rf"^a\.nii {message}"):
        validate_labels(array, "a.nii", THREE)


@pytest.mark.parametrize("classes, dtype", [(256, np.uint8), (257, np.int16)])
def test_labels_have_the_smallest_type(classes, dtype):
    found = validate_labels(np.array([0.0, classes - 1]), "a.nii", tuple(map(str, range(classes))))
    assert found.dtype == dtype and found.tolist() == [0, classes - 1]
