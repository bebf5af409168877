"""Scans are read in one handedness, and label maps lie where the scans lie: nibabel is the judge."""

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from data.scan_files import AFFINES, affine, numbers, write_nifti
from steerformer.data import DataError
from steerformer.data.labels import read_labels
from steerformer.data.scans import read_scan, write_labels, write_probabilities

SHAPE = (5, 6, 7)


def world(matrix, places):
    return places @ matrix[:3, :3].T + matrix[:3, 3]


@pytest.mark.parametrize("kind", AFFINES)
def test_volumes_are_those_of_nibabel_in_canonical_axes(tmp_path, kind):
    path = write_nifti(tmp_path / "a.nii.gz", numbers(SHAPE), affine(kind, (1.0, 2.0, 3.0)))
    expected = nibabel.as_closest_canonical(nibabel.load(path))
    scan = read_scan(path, 1)
    assert_close(scan.x[0], torch.from_numpy(np.asarray(expected.dataobj).copy()))
    assert scan.spacing == pytest.approx(expected.header.get_zooms())
    assert scan.kind == "volume" and scan.path == path
    assert np.linalg.det(scan.geometry.canonical_affine) > 0  # one handedness for all
    assert_close(scan.geometry.canonical_affine, expected.affine)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
@pytest.mark.parametrize("kind", AFFINES)
def test_a_label_map_lies_where_the_scan_lies(tmp_path, kind, suffix):
    path = write_nifti(tmp_path / f"a.{suffix}", numbers(SHAPE), affine(kind, (1.0, 2.0, 3.0)))
    scan = read_scan(path)
    labels = (scan.x[0] > 600).byte() + (scan.x[0] > 900).byte()  # a function of the voxel: misplaced ones are seen
    out = tmp_path / f"labels.{suffix}"
    write_labels(scan, labels, out)
    source, found = nibabel.load(path), nibabel.load(out)
    values = np.asarray(source.dataobj)
    assert np.array_equal(np.asarray(found.dataobj), (values > 600).astype(int) + (values > 900))
    assert found.get_data_dtype() == np.uint8
    assert np.array_equal(found.affine, source.affine)
    for name in ("sform_code", "qform_code", "descrip", "xyzt_units", "pixdim", "srow_x", "srow_y", "quatern_b", "dim"):
        assert np.array_equal(found.header[name], source.header[name]), name


@pytest.mark.parametrize("codes", [(1, 0), (0, 1), (2, 3), (0, 0)])
def test_the_codes_of_the_forms_stay(tmp_path, codes):
    image = nibabel.Nifti1Image(numbers(SHAPE), affine("oblique" if any(codes) else "right"))
    image.set_qform(image.affine, code=codes[0])
    image.set_sform(image.affine if codes[1] else None, code=codes[1])
    nibabel.save(image, tmp_path / "a.nii")
    write_labels(read_scan(tmp_path / "a.nii"), np.ones(read_scan(tmp_path / "a.nii").shape, int), tmp_path / "b.nii")
    source, found = nibabel.load(tmp_path / "a.nii"), nibabel.load(tmp_path / "b.nii")
    assert (found.header["qform_code"], found.header["sform_code"]) == codes
    assert np.array_equal(found.affine, source.affine)
    assert np.array_equal(found.get_qform(), source.get_qform())


@pytest.mark.parametrize("kind", [np.int16, np.uint8, np.float32, np.float64, np.dtype(">i2")])
def test_numbers_of_every_kind_are_read_and_a_slope_is_not_inherited(tmp_path, kind):
    stored = (np.arange(210) % 100).reshape(SHAPE).astype(kind)
    order = ">" if np.dtype(kind).byteorder == ">" else "<"
    image = nibabel.Nifti1Image(stored, affine("mirrored"), nibabel.Nifti1Header(endianness=order))
    image.header.set_data_dtype(kind)
    image.header.set_slope_inter(0.5, -3.0)
    image.header["cal_max"] = 77.0
    path = tmp_path / "a.nii.gz"
    nibabel.save(image, path)
    expected = nibabel.as_closest_canonical(nibabel.load(path)).get_fdata()
    scan = read_scan(path)
    assert_close(scan.x[0], torch.from_numpy(expected.astype(np.float32)))
    assert expected.min() == -3.0 and nibabel.load(path).dataobj.slope == 0.5  # the slope is in the file
    labels = np.zeros(SHAPE, np.int64)
    labels[1, 2, 3] = 2
    write_labels(scan, labels, tmp_path / "b.nii.gz")
    found = nibabel.load(tmp_path / "b.nii.gz")
    assert found.dataobj.slope == 1.0 and found.dataobj.inter == 0.0 and found.header["cal_max"] == 0
    assert np.array_equal(np.asarray(found.dataobj)[::-1], labels)


def test_volumes_of_four_axes_have_label_maps_of_three(tmp_path):
    array = numbers((*SHAPE, 4), kind=np.int16)
    path = write_nifti(tmp_path / "a.nii.gz", array, affine("permuted", (2.0, 1.0, 1.0)))
    scan = read_scan(path, 4, dim=3)
    expected = nibabel.as_closest_canonical(nibabel.load(path))
    assert_close(scan.x, torch.from_numpy(expected.get_fdata().astype(np.float32)).movedim(3, 0))
    labels = scan.x[2] > 500
    write_labels(scan, labels.byte(), tmp_path / "b.nii.gz")
    found = nibabel.load(tmp_path / "b.nii.gz")
    assert found.shape == SHAPE and np.array_equal(np.asarray(found.dataobj) == 1, array[..., 2] > 500)
    assert np.array_equal(found.affine, nibabel.load(path).affine)
    assert found.header.get_xyzt_units() == ("mm", "sec")


def test_probabilities_have_their_classes_on_a_fourth_axis(tmp_path):
    path = write_nifti(tmp_path / "a.nii", numbers(SHAPE), affine("oblique mirrored"))
    scan = read_scan(path)
    p = torch.stack([scan.x[0] / 1000, 1 - scan.x[0] / 1000])
    write_probabilities(scan, p, tmp_path / "p.nii.gz")
    found = nibabel.load(tmp_path / "p.nii.gz")
    assert found.shape == (*SHAPE, 2) and found.get_data_dtype() == np.float32
    values = np.asarray(nibabel.load(path).dataobj) / 1000
    np.testing.assert_allclose(found.get_fdata(), np.stack([values, 1 - values], axis=-1), rtol=1e-6)
    assert np.array_equal(found.affine, nibabel.load(path).affine)


def test_many_labels_take_two_bytes(tmp_path):
    path = write_nifti(tmp_path / "a.nii", numbers(SHAPE))
    labels = np.arange(210).reshape(SHAPE) * 2
    write_labels(read_scan(path), labels, tmp_path / "b.nii")
    found = nibabel.load(tmp_path / "b.nii")
    assert found.get_data_dtype() == np.int16 and np.array_equal(np.asarray(found.dataobj), labels)


def test_arrays_come_and_go_as_npy(tmp_path):
    np.save(tmp_path / "a.npy", numbers(SHAPE))
    scan = read_scan(tmp_path / "a.npy")
    assert scan.spacing == (1.0, 1.0, 1.0)
    labels = (scan.x[0] > 500).numpy().astype(np.uint8)
    write_labels(scan, labels, tmp_path / "b.npy")
    assert np.array_equal(np.load(tmp_path / "b.npy"), labels)
    assert np.array_equal(scan.restore(labels), labels)
    write_probabilities(scan, np.stack([labels, 1 - labels]), tmp_path / "p.npy")
    assert np.array_equal(np.load(tmp_path / "p.npy")[..., 1], 1 - labels)


def test_images_give_pngs(tmp_path):
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
    assert read_scan(tmp_path / "a.bmp").x.shape == (3, 8, 6)  # as many channels as there are


@pytest.mark.parametrize("kind", ["right", "mirrored"])
def test_modalities_may_lie_in_files_of_their_own(tmp_path, kind):
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


def test_modalities_saved_in_other_axes_are_laid_over_each_other(tmp_path):
    array = numbers(SHAPE)
    first = write_nifti(tmp_path / "a.nii", array)
    matrix = affine() @ np.array([[-1, 0, 0, 4], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    second = write_nifti(tmp_path / "b.nii", array[::-1], matrix)
    assert_close(*read_scan([first, second]).x)


@pytest.mark.parametrize("first", ["nii", "npy"])
def test_files_of_which_one_alone_tells_where_it_lies_are_refused(tmp_path, first):
    """The scan of a NIfTI file is turned to right, front and up; an array of the same shape would not be."""
    array = numbers((5, 5, 5))
    nifti, plain = write_nifti(tmp_path / "a.nii", array, affine("mirrored")), tmp_path / "b.npy"
    np.save(plain, array)
    one, other = (nifti, plain) if first == "nii" else (plain, nifti)
    message = rf"{other.name} and .*{one.name} cannot be laid over each other: one is NIfTI"
    with pytest.raises(DataError, match=message):
        read_scan([one, other])
    with pytest.raises(DataError, match=message):
        read_labels(other, read_scan(one), ("background", "lesion"))
    assert read_scan([plain, plain]).x.shape == (2, 5, 5, 5)


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
def test_bad_scans_are_named(tmp_path, write, dim, message):
    write(tmp_path / "bad.npy")
    with pytest.raises(DataError, match=message) as found:
        read_scan(tmp_path / "bad.npy", 4, dim=dim)
    assert "bad.npy" in str(found.value) and "\n" not in str(found.value)


def test_slices_truncated_and_shapeless_nifti_are_named(tmp_path):
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
    image = nibabel.Nifti1Image(numbers(SHAPE), np.eye(4))
    data = bytearray(image.to_bytes())
    data[296:312] = bytes(16)  # the second row of the affine: nothing runs to the front
    (tmp_path / "nowhere.nii").write_bytes(data)
    with pytest.raises(DataError, match=r"nowhere\.nii cannot be read as NIfTI"):
        read_scan(tmp_path / "nowhere.nii")
    Image.new("L", (4, 4)).save(tmp_path / "photo.png")
    with pytest.raises(DataError, match=r"photo\.png is an image, expected a volume"):
        read_scan(tmp_path / "photo.png", dim=3)


def test_labels_that_do_not_fit_are_refused(tmp_path):
    scan = read_scan(write_nifti(tmp_path / "a.nii", numbers(SHAPE)))
    with pytest.raises(ValueError, match=r"read with shape \(5, 6, 7\), got labels of shape \(5, 6, 6\)"):
        write_labels(scan, np.zeros((5, 6, 6), int), tmp_path / "b.nii")
    with pytest.raises(ValueError, match=r"read with shape \(5, 6, 7\)"):
        scan.restore(np.zeros((5, 6, 6), int))
    with pytest.raises(ValueError, match="labels are 0 to 32767, got -1 to 0"):
        write_labels(scan, np.zeros(SHAPE, int) - np.eye(7, dtype=int)[1:, :].reshape(1, 6, 7), tmp_path / "b.nii")
    with pytest.raises(ValueError, match=r"b\.png should end in \.nii or \.nii\.gz"):
        write_labels(scan, np.zeros(SHAPE, int), tmp_path / "b.png")
    with pytest.raises(ValueError, match="got probabilities of"):
        write_probabilities(scan, np.zeros((2, 5, 6, 6)), tmp_path / "b.nii")
    assert [path.name for path in tmp_path.iterdir()] == ["a.nii"]
