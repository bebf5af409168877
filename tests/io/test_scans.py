"""Scans: reading one or several files, writing labels and probabilities, and errors that name the file."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from data.scan_files import affine, numbers, write_nifti
from steerformer.data import DataError
from steerformer.io.scans import read_scan, write_labels, write_probabilities

SHAPE = (5, 6, 7)


def test_npy_volumes_give_npy_labels(tmp_path):
    np.save(tmp_path / "a.npy", numbers(SHAPE))
    scan = read_scan(tmp_path / "a.npy")
    assert scan.spacing == (1.0, 1.0, 1.0)
    labels = (scan.x[0] > 500).numpy().astype(np.uint8)
    write_labels(scan, labels, tmp_path / "b.npy")
    assert np.array_equal(np.load(tmp_path / "b.npy"), labels)
    assert np.array_equal(scan.to_file_axes(labels), labels)
    write_probabilities(scan, np.stack([labels, 1 - labels]), tmp_path / "p.npy")
    assert np.array_equal(np.load(tmp_path / "p.npy")[..., 1], 1 - labels)


def test_images_give_png_labels(tmp_path):
    pixels = numbers((8, 6, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.bmp")
    scan = read_scan(tmp_path / "a.bmp", 3, dim=2)
    assert scan.kind == "image" and scan.spacing == (1.0, 1.0)
    assert_close(scan.x, torch.from_numpy(pixels).movedim(2, 0) / 255)
    labels = (pixels[..., 0] > 100).astype(np.int64)
    write_labels(scan, labels, tmp_path / "two.png", classes=2)
    write_labels(scan, 2 * labels, tmp_path / "three.png", classes=3)
    write_labels(scan, 300 * labels, tmp_path / "many.png")
    for name, factor in (("two", 255), ("three", 2), ("many", 300)):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert np.array_equal(np.array(image), factor * labels)
    write_probabilities(scan, np.stack([labels, 1 - labels]), tmp_path / "p.npy")
    assert np.load(tmp_path / "p.npy").shape == (8, 6, 2)
    assert read_scan(tmp_path / "a.bmp").x.shape == (3, 8, 6)  # without channels: those of the file


@pytest.mark.parametrize("kind", ["right", "mirrored"])
def test_modalities_in_separate_files_become_channels(tmp_path, kind):
    arrays = [numbers(SHAPE, seed=seed) for seed in range(3)]
    paths = [write_nifti(tmp_path / f"a_{i}.nii", array, affine(kind)) for i, array in enumerate(arrays)]
    scan = read_scan(paths, 3)
    assert scan.path == paths[0]
    assert_close(scan.x, torch.cat([read_scan(path, 1).x for path in paths]))
    with pytest.raises(DataError, match=r"a_0\.nii has 2 modalities \(a_0\.nii, a_1\.nii\), expected 3"):
        read_scan(paths[:2], 3)
    write_nifti(paths[1], numbers((5, 6, 8)))
    with pytest.raises(DataError, match=r"a_1\.nii has shape \(5, 6, 8\), but .*a_0\.nii has \(5, 6, 7\)"):
        read_scan(paths)
    moved = affine(kind)
    moved[0, 3] += 3.0
    write_nifti(paths[1], arrays[1], moved)
    with pytest.raises(DataError, match=r"a_1\.nii lies 3\.0 mm away from .*a_0\.nii"):
        read_scan(paths)


def test_modalities_with_different_axes_are_aligned(tmp_path):
    array = numbers(SHAPE)
    first = write_nifti(tmp_path / "a.nii", array)
    matrix = affine() @ np.array([[-1, 0, 0, 4], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    second = write_nifti(tmp_path / "b.nii", array[::-1], matrix)
    assert_close(*read_scan([first, second]).x)


@pytest.mark.parametrize(
    "write, dim, message",
    [
        (lambda path: np.save(path, np.zeros((4, 4))), 3, r"is a single slice \(shape \(4, 4\)\), expected a volume"),
        (lambda path: np.save(path, np.zeros((4, 1, 4))), 3, "is a single slice"),
        (lambda path: np.save(path, np.zeros((4, 4, 4))), 2, "is a volume, expected an image"),
        (lambda path: np.save(path, np.full((4, 4, 4, 4), np.nan)), 3, "holds NaN or infinity"),
        (lambda path: np.save(path, np.zeros((4, 4, 4, 3))), 3, "has 3 channels .* expected 4"),
        (lambda path: path.write_bytes(b"no"), 3, "cannot be read"),
        (lambda path: None, 3, "there is no file"),
    ],
)
def test_invalid_scans_are_named(tmp_path, write, dim, message):
    write(tmp_path / "bad.npy")
    with pytest.raises(DataError, match=message) as found:
        read_scan(tmp_path / "bad.npy", 4, dim=dim)
    assert "bad.npy" in str(found.value) and "\n" not in str(found.value)


def test_slices_images_and_truncated_files_are_not_volumes(tmp_path):
    path = write_nifti(tmp_path / "slice.nii.gz", numbers((6, 6, 1)))
    with pytest.raises(DataError, match=r"slice\.nii\.gz is a single slice"):
        read_scan(path, dim=3)
    path = write_nifti(tmp_path / "flat.nii", numbers((6, 6)))
    with pytest.raises(DataError, match=r"flat\.nii is a single slice"):
        read_scan(path, dim=3)
    path = write_nifti(tmp_path / "cut.nii.gz", numbers((9, 9, 9)))
    path.write_bytes(path.read_bytes()[:800])
    with pytest.raises(DataError, match=r"cut\.nii\.gz cannot be read as NIfTI"):
        read_scan(path)
    Image.new("L", (4, 4)).save(tmp_path / "photo.png")
    with pytest.raises(DataError, match=r"photo\.png is an image, expected a volume"):
        read_scan(tmp_path / "photo.png", dim=3)


def test_labels_that_do_not_fit_the_scan_are_rejected(tmp_path):
    scan = read_scan(write_nifti(tmp_path / "a.nii", numbers(SHAPE)))
    with pytest.raises(ValueError, match=r"read with shape \(5, 6, 7\), got labels of shape \(5, 6, 6\)"):
        write_labels(scan, np.zeros((5, 6, 6), int), tmp_path / "b.nii")
    with pytest.raises(ValueError, match=r"read with shape \(5, 6, 7\)"):
        scan.to_file_axes(np.zeros((5, 6, 6), int))
    with pytest.raises(ValueError, match="labels are 0 to 32767, got -1 to 0"):
        write_labels(scan, np.zeros(SHAPE, int) - np.eye(7, dtype=int)[1:, :].reshape(1, 6, 7), tmp_path / "b.nii")
    with pytest.raises(ValueError, match=r"b\.png should end in \.nii or \.nii\.gz"):
        write_labels(scan, np.zeros(SHAPE, int), tmp_path / "b.png")
    with pytest.raises(ValueError, match="got probabilities of"):
        write_probabilities(scan, np.zeros((2, 5, 6, 6)), tmp_path / "b.nii")
    assert [path.name for path in tmp_path.iterdir()] == ["a.nii"]
