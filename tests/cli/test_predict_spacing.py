"""Commands on scans whose voxels differ from those of the training cases, which have 1 mm."""

import nibabel
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from cli.small_runs import scene, write_volumes
from data.scan_files import affine, write_nifti
from steerformer import open_run
from steerformer.cli import app
from steerformer.data.preprocessing import normalize

pytestmark = pytest.mark.slow
SHAPE = (14, 12, 13)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def labels_by_definition(folder, array, shape):
    """Resample, normalize, predict, resample the scores back: with torch alone."""
    opened = open_run(folder)
    x = torch.from_numpy(array.astype(np.float32))[None]
    with torch.no_grad():
        seen = F.interpolate(x[None], shape, mode="trilinear", align_corners=False)[0]
        scores = opened.model(normalize(seen, opened.config.data.normalize)[None])
        return F.interpolate(scores, x.shape[1:], mode="trilinear", align_corners=False)[0].argmax(0)


def test_coarse_scan_is_resampled_and_labels_come_back(volume_run, tmp_path):
    array = scene(SHAPE, seed=9)[0][::2, ::2, ::2].astype(np.float32)
    path = write_nifti(tmp_path / "coarse.nii.gz", array, affine("right", (2.0, 2.0, 2.0)))
    same = write_nifti(tmp_path / "same.nii.gz", scene(SHAPE, seed=8)[0].astype(np.float32), affine("right"))
    code, text = run("predict", volume_run, path, same, "--out", tmp_path / "out")
    assert code == 0, text
    assert "1 scan has other voxels than the training cases and was resampled to 1 x 1 x 1 mm" in text
    assert "coarse.nii.gz (2 x 2 x 2 mm)" in text and "same.nii.gz" not in text
    found = nibabel.load(tmp_path / "out" / path.name)
    assert found.shape == array.shape and np.array_equal(found.affine, nibabel.load(path).affine)
    expected = labels_by_definition(volume_run, array, [2 * n for n in array.shape])
    assert np.array_equal(np.asarray(found.dataobj), expected) and expected.any()
    with pytest.warns(UserWarning, match="resampled to 1 x 1 x 1 mm"):
        (from_python,) = open_run(volume_run).predict(path)
    assert torch.equal(from_python.labels.long(), expected)


def test_scan_that_cannot_be_resampled_is_skipped(volume_run, tmp_path):
    array = scene(SHAPE, seed=9)[0].astype(np.float32)
    path = write_nifti(tmp_path / "wrong.nii.gz", array, affine("right", (0.001, 0.001, 0.001)))
    code, text = run("predict", volume_run, path, "--out", tmp_path / "out")
    assert code == 2 and not list((tmp_path / "out").iterdir())
    assert "wrong.nii.gz has voxels of 0.001 x 0.001 x 0.001 mm, more than 8 times finer or coarser" in text


def test_evaluate_and_check_resample_other_data(volume_run, tmp_path):
    root = write_volumes(tmp_path / "coarse", count=4)
    for path in root.rglob("*.nii.gz"):
        array = np.asarray(nibabel.load(path).dataobj)
        nibabel.save(nibabel.Nifti1Image(array[::2, ::2, ::2], np.diag([2.0, 2.0, 2.0, 1.0])), path)
    for command in (["evaluate", volume_run], ["check", volume_run, "--samples", 1, "--angles", 90, "--out", tmp_path]):
        code, text = run(*command, f"data.root={root}")
        assert code in (0, 1), text  # a network trained for seconds may fail a check
        assert "has voxels of 2 x 2 x 2 mm, unlike the training cases; its cases are resampled to 1 x 1 x 1 mm" in text
    found = open_run(volume_run).config.data
    assert found.spacing is None  # the run itself is unchanged
