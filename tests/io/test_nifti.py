"""NIfTI geometry: volumes are read in RAS+ orientation, label maps get the geometry of the scan. Oracle: nibabel."""

import nibabel
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from data.scan_files import AFFINES, affine, numbers, write_nifti
from steerformer.data import DataError
from steerformer.io.nifti import corner_distance, read_volume
from steerformer.io.scans import read_scan, write_labels, write_probabilities

SHAPE = (5, 6, 7)


@pytest.mark.parametrize("kind", AFFINES)
def test_volumes_are_read_in_ras_orientation(tmp_path, kind):
    path = write_nifti(tmp_path / "a.nii.gz", numbers(SHAPE), affine(kind, (1.0, 2.0, 3.0)))
    expected = nibabel.as_closest_canonical(nibabel.load(path))
    scan = read_scan(path, 1)
    assert_close(scan.x[0], torch.from_numpy(np.asarray(expected.dataobj).copy()))
    assert scan.spacing == pytest.approx(expected.header.get_zooms())
    assert scan.kind == "volume" and scan.path == path
    assert np.linalg.det(scan.geometry.canonical_affine) > 0  # all scans have the same handedness
    assert_close(scan.geometry.canonical_affine, expected.affine)


def test_flipped_axes_are_reversed(tmp_path):
    array = np.random.default_rng(0).normal(size=(4, 4, 4)).astype(np.float32)
    path = write_nifti(tmp_path / "flipped.nii", array[::-1], np.diag([-1.0, 1, 1, 1]))
    assert np.array_equal(read_volume(path)[0], array)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
@pytest.mark.parametrize("kind", AFFINES)
def test_label_maps_have_the_geometry_of_the_scan(tmp_path, kind, suffix):
    path = write_nifti(tmp_path / f"a.{suffix}", numbers(SHAPE), affine(kind, (1.0, 2.0, 3.0)))
    scan = read_scan(path)
    labels = (scan.x[0] > 600).byte() + (scan.x[0] > 900).byte()  # a function of each voxel reveals misplaced ones
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
def test_qform_and_sform_codes_are_kept(tmp_path, codes):
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
def test_all_data_types_are_read_and_labels_do_not_inherit_the_slope(tmp_path, kind):
    raw = (np.arange(210) % 100).reshape(SHAPE).astype(kind)
    order = ">" if np.dtype(kind).byteorder == ">" else "<"
    image = nibabel.Nifti1Image(raw, affine("mirrored"), nibabel.Nifti1Header(endianness=order))
    image.header.set_data_dtype(kind)
    image.header.set_slope_inter(0.5, -3.0)
    image.header["cal_max"] = 77.0
    path = tmp_path / "a.nii.gz"
    nibabel.save(image, path)
    expected = nibabel.as_closest_canonical(nibabel.load(path)).get_fdata()
    scan = read_scan(path)
    assert_close(scan.x[0], torch.from_numpy(expected.astype(np.float32)))
    assert expected.min() == -3.0 and nibabel.load(path).dataobj.slope == 0.5  # the file has a slope
    labels = np.zeros(SHAPE, np.int64)
    labels[1, 2, 3] = 2
    write_labels(scan, labels, tmp_path / "b.nii.gz")
    found = nibabel.load(tmp_path / "b.nii.gz")
    assert found.dataobj.slope == 1.0 and found.dataobj.inter == 0.0 and found.header["cal_max"] == 0
    assert np.array_equal(np.asarray(found.dataobj)[::-1], labels)


def test_label_maps_of_4d_scans_have_three_axes(tmp_path):
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


def test_probabilities_have_classes_on_the_fourth_axis(tmp_path):
    path = write_nifti(tmp_path / "a.nii", numbers(SHAPE), affine("oblique mirrored"))
    scan = read_scan(path)
    p = torch.stack([scan.x[0] / 1000, 1 - scan.x[0] / 1000])
    write_probabilities(scan, p, tmp_path / "p.nii.gz")
    found = nibabel.load(tmp_path / "p.nii.gz")
    assert found.shape == (*SHAPE, 2) and found.get_data_dtype() == np.float32
    values = np.asarray(nibabel.load(path).dataobj) / 1000
    np.testing.assert_allclose(found.get_fdata(), np.stack([values, 1 - values], axis=-1), rtol=1e-6)
    assert np.array_equal(found.affine, nibabel.load(path).affine)


def test_more_than_256_labels_are_int16(tmp_path):
    path = write_nifti(tmp_path / "a.nii", numbers(SHAPE))
    labels = np.arange(210).reshape(SHAPE) * 2
    write_labels(read_scan(path), labels, tmp_path / "b.nii")
    found = nibabel.load(tmp_path / "b.nii")
    assert found.get_data_dtype() == np.int16 and np.array_equal(np.asarray(found.dataobj), labels)


def test_degenerate_affine_is_rejected(tmp_path):
    data = bytearray(nibabel.Nifti1Image(numbers(SHAPE), np.eye(4)).to_bytes())
    data[296:312] = bytes(16)  # the second row of the affine: no axis runs to anterior
    (tmp_path / "nowhere.nii").write_bytes(data)
    with pytest.raises(DataError, match=r"nowhere\.nii cannot be read as NIfTI"):
        read_scan(tmp_path / "nowhere.nii")


@pytest.mark.parametrize("kind", AFFINES)
def test_corner_distance_is_the_largest_over_all_voxels(kind):
    """Oracle: the distance at every voxel; an affine map is farthest off at a corner."""
    first, second = affine(kind, (1.0, 2.0, 3.0)), affine("oblique")
    voxels = np.indices(SHAPE).reshape(3, -1)
    apart = [matrix[:3, :3] @ voxels + matrix[:3, 3:] for matrix in (first, second)]
    expected = np.linalg.norm(apart[0] - apart[1], axis=0).max()
    assert corner_distance(first, second, SHAPE) == pytest.approx(expected)
    assert corner_distance(first, first, SHAPE) == 0
