"""``steerformer predict`` with segmentation models: label maps in the geometry of the scans."""

import os
import re
import subprocess
import sys

import nibabel
import numpy as np
import pytest
import torch
from nibabel.spatialimages import HeaderDataError
from PIL import Image
from typer.testing import CliRunner

from cli.small_runs import scene, segmentation_config, train
from data.scan_files import AFFINES, affine, write_nifti
from steerformer import open_run
from steerformer.cli import app
from steerformer.data.preprocessing import preprocess
from steerformer.infer import segment_files
from steerformer.io.scans import read_scan

SHAPE = (14, 12, 13)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def predicted(folder, path):
    """Logits of a file on its RAS+ grid: the oracle for files in RAS+ orientation."""
    opened = open_run(folder)
    scan = read_scan(path)
    with torch.no_grad():
        return opened.model(preprocess(scan.x, scan.spacing, opened.config.data).x[None])[0]


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("kind", [np.int16, np.float64])
def test_label_maps_have_the_geometry_of_the_scans(volume_run, tmp_path, ending, kind):
    """Oblique and permuted axes and many header fields, read back by nibabel."""
    x, _ = scene(SHAPE, seed=9)
    files = []
    for name in AFFINES:
        slope = {"scl_slope": 1.0, "scl_inter": 0.0}
        path = tmp_path / "in" / f"{name.replace(' ', '-')}{ending}"
        files.append(write_nifti(path, x.astype(kind), affine(name, (1.0, 1.04, 0.97)), **slope))
    result = run("predict", volume_run, *files, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "wrote 6 label maps into" in " ".join(result.output.split())
    for path in files:
        scan, found = nibabel.load(path), nibabel.load(tmp_path / "out" / path.name)
        assert found.shape == scan.shape == SHAPE and found.get_data_dtype() == np.uint8
        assert np.array_equal(found.affine, scan.affine)
        for field in ("qform_code", "sform_code", "pixdim", "xyzt_units", "descrip", "srow_x", "quatern_b"):
            assert np.array_equal(found.header[field], scan.header[field]), field
        assert set(np.unique(found.dataobj)) <= {0, 1, 2}
    expected = predicted(volume_run, files[0]).argmax(0)
    assert 0.02 < (expected > 0).float().mean() < 0.9
    assert np.array_equal(np.asarray(nibabel.load(tmp_path / "out" / files[0].name).dataobj), expected)


def test_label_maps_do_not_depend_on_the_axes_of_the_file(volume_run, tmp_path):
    """A volume written with two orders of its axes: the label maps agree in RAS+ orientation."""
    x, _ = scene(SHAPE, seed=3)
    first = nibabel.Nifti1Image(x.astype(np.float32), affine("right"))
    other = first.as_reoriented(np.array([[2, -1], [0, 1], [1, -1]]))
    for name, image in (("one", first), ("two", other)):
        nibabel.save(image, tmp_path / f"{name}.nii.gz")
    result = run("predict", volume_run, tmp_path / "one.nii.gz", tmp_path / "two.nii.gz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    one, two = (nibabel.load(tmp_path / "out" / f"{name}.nii.gz") for name in ("one", "two"))
    assert two.shape != one.shape
    assert np.array_equal(np.asarray(nibabel.as_closest_canonical(two).dataobj), np.asarray(one.dataobj))


def test_volume_with_four_axes_gives_labels_with_three(volume_run, tmp_path):
    x, _ = scene(SHAPE, seed=4)
    path = write_nifti(tmp_path / "four.nii.gz", x[..., None].astype(np.float32), affine("oblique"))
    result = run("predict", volume_run, path, "--out", tmp_path / "out", "--probabilities", "--overlay")
    assert result.exit_code == 0, result.output
    labels = nibabel.load(tmp_path / "out" / "four.nii.gz")
    shares = nibabel.load(tmp_path / "out" / "four-probabilities.nii.gz")
    assert labels.shape == SHAPE and shares.shape == (*SHAPE, 3) and shares.get_data_dtype() == np.float32
    assert np.array_equal(shares.affine, labels.affine) and np.array_equal(shares.affine, nibabel.load(path).affine)
    values = np.asarray(shares.dataobj)
    assert np.allclose(values.sum(-1), 1, atol=1e-5)
    assert np.array_equal(values.argmax(-1), np.asarray(labels.dataobj))
    with Image.open(tmp_path / "out" / "four-overlay.png") as figure:
        assert figure.width > 300


def test_masks_have_the_size_of_the_images(image_run, tmp_path):
    """The input of the model has 16 x 18 pixels; the scores are resampled to the pixels of the image."""
    x, labels = scene((41, 50), seed=5)
    Image.fromarray(x.astype(np.uint8)).save(tmp_path / "photo.jpg", quality=95)
    result = run("predict", image_run, tmp_path / "photo.jpg", "--out", tmp_path / "out", "--probabilities")
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "out" / "photo.png") as image:
        found = np.asarray(image)
    assert found.shape == (41, 50) and set(np.unique(found)) == {0, 255}
    truth, mask = labels > 0, found > 0
    assert 2 * (truth & mask).sum() / (truth.sum() + mask.sum()) > 0.8
    shares = np.load(tmp_path / "out" / "photo-probabilities.npy")
    assert shares.shape == (41, 50, 2) and np.array_equal(shares.argmax(-1), mask)


def test_unreadable_scans_are_listed_and_others_predicted(volume_run, tmp_path):
    x, _ = scene(SHAPE, seed=6)
    good = [write_nifti(tmp_path / f"good{i}.nii.gz", x.astype(np.int16)) for i in range(2)]
    data = good[0].read_bytes()
    cut, empty = tmp_path / "cut.nii.gz", tmp_path / "empty.nii"
    cut.write_bytes(data[: len(data) // 2])
    empty.write_bytes(b"")
    nan = write_nifti(tmp_path / "nan.nii", np.full(SHAPE, np.nan, dtype=np.float32))
    slice_ = write_nifti(tmp_path / "slice.nii", x[:, :, :1].astype(np.float32))
    two = write_nifti(tmp_path / "two.nii", np.stack([x, x], -1).astype(np.float32))
    Image.fromarray(x[0].astype(np.uint8)).save(tmp_path / "image.png")
    bad = [cut, empty, nan, slice_, two, tmp_path / "image.png", tmp_path / "none.nii", tmp_path / "notes.txt"]
    result = run("predict", volume_run, good[0], *bad, good[1], "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["good0.nii.gz", "good1.nii.gz"]
    assert result.stderr.count("\n") == 1 and "8 of 10 scans could not be segmented" in result.stderr
    assert all(path.name in result.stderr for path in bad), result.stderr
    assert "wrote 2 label maps" in result.output


@pytest.mark.parametrize("taken", ["bad.nii", "bad-probabilities.nii", "bad-overlay.png"])
def test_scan_whose_results_cannot_be_written_leaves_no_file(volume_run, tmp_path, taken):
    """A folder has the name of one of the files."""
    x, _ = scene(SHAPE, seed=6)
    files = [write_nifti(tmp_path / f"{name}.nii", x.astype(np.int16)) for name in ("bad", "good")]
    (tmp_path / "out" / taken).mkdir(parents=True)
    result = run("predict", volume_run, *files, "--out", tmp_path / "out", "--probabilities", "--overlay", "--force")
    assert result.exit_code == 2 and "wrote 1 label map into" in result.output
    assert "1 of 2 scans could not be segmented" in result.stderr and result.stderr.count("\n") == 1
    assert f"cannot read or write {tmp_path / 'out' / taken}: Is a directory." in result.stderr
    good = ["good-overlay.png", "good-probabilities.nii", "good.nii"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([taken, *good])


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        ("segment", MemoryError(), "out of memory; free some, or set a lower memory (--memory)"),
        ("segment", RuntimeError("alloc.cpp: can't allocate memory: 9 bytes"), "out of memory; free some"),
        ("write_labels", MemoryError(), "out of memory; free some, or set a lower memory (--memory)"),
        ("write_labels", HeaderDataError("shape does not fit"), "shape does not fit"),
        ("write_labels", OSError(28, "No space left on device"), "No space left on device"),
    ],
    ids=lambda value: str(value).split(":")[0],
)
def test_failing_scan_does_not_stop_the_others(volume_run, tmp_path, monkeypatch, step, error, words):
    x, _ = scene(SHAPE, seed=6)
    files = [write_nifti(tmp_path / f"{name}.nii", x.astype(np.int16)) for name in ("bad", "good")]
    original = getattr(segment_files, step)

    def fails(*arguments, **options):
        if any(getattr(argument, "path", None) == files[0] for argument in arguments):
            raise error
        return original(*arguments, **options)

    monkeypatch.setattr(segment_files, step, fails)
    result = run("predict", volume_run, *files, "--out", tmp_path / "out")
    assert result.exit_code == 2 and "1 of 2 scans could not be segmented" in result.stderr, result.exception
    assert f"{files[0]}: {words}" in result.stderr and result.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good.nii"]


def test_other_runtime_errors_are_raised(volume_run, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(segment_files, "segment", fails)
    path = write_nifti(tmp_path / "a.nii", scene(SHAPE, seed=6)[0].astype(np.int16))
    assert isinstance(run("predict", volume_run, path, "--out", tmp_path / "out").exception, RuntimeError)


def test_modalities_may_be_separate_files(tmp_path):
    for i in range(4):
        x, labels = scene(SHAPE, seed=i)
        for channel in range(2):
            write_nifti(tmp_path / "imagesTr" / f"case{i}_000{channel}.nii.gz", (x + channel).astype(np.float32))
        write_nifti(tmp_path / "labelsTr" / f"case{i}.nii.gz", (labels > 0).astype(np.uint8))
    options = {"test": 1, "training": {"epochs": 1}, "model": {"in_channels": 2, "depth": 0}}
    folder = train(tmp_path / "run", segmentation_config(tmp_path, group="SO3", classes=2, **options))
    files = sorted((tmp_path / "imagesTr").iterdir())[:5]  # two complete cases, and one without its second modality
    four = np.stack([scene(SHAPE, seed=0)[0] + channel for channel in range(2)], -1).astype(np.float32)
    joined = write_nifti(tmp_path / "joined_0000.nii.gz", four)
    result = run("predict", folder, *files, joined, "--out", tmp_path / "out")
    assert result.exit_code == 2 and "1 of 4 scans could not be segmented" in result.stderr
    assert "case2_0000.nii.gz" in result.stderr and "expected 2" in result.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["case0.nii.gz", "case1.nii.gz", "joined_0000.nii.gz"]
    one, other = (np.asarray(nibabel.load(tmp_path / "out" / name).dataobj) for name in (names[0], names[2]))
    assert np.array_equal(one, other)


def test_existing_files_are_overwritten_only_by_force(volume_run, tmp_path):
    x, _ = scene(SHAPE, seed=7)
    path = write_nifti(tmp_path / "in" / "a.nii", x.astype(np.float32))
    out = tmp_path / "out"
    out.mkdir()
    (out / "a-overlay.png").write_text("mine")
    result = run("predict", volume_run, path, "--out", out, "--overlay")
    assert result.exit_code == 2 and "a-overlay.png exists" in result.stderr and "--force" in result.stderr
    assert [file.name for file in out.iterdir()] == ["a-overlay.png"]
    assert run("predict", volume_run, path, "--out", out, "--overlay", "--force").exit_code == 0
    assert (out / "a-overlay.png").read_bytes().startswith(b"\x89PNG")
    before = path.read_bytes()
    result = run("predict", volume_run, path, "--out", tmp_path / "in", "--force")
    assert result.exit_code == 2 and "one of the files to predict" in result.stderr and path.read_bytes() == before
    other = write_nifti(tmp_path / "other" / "a.nii", x.astype(np.float32))
    result = run("predict", volume_run, path, other, "--out", tmp_path / "new")
    assert result.exit_code == 2 and "would both become" in result.stderr and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "choose a folder by out (--out)"),
        (["--out", "new", "--memory", "much"], "such as 2G or 800M, got 'much'"),
        (["--out", "new", "--memory", "1M"], "1M of memory are not enough"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(volume_run, volumes, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run("predict", volume_run, volumes / "images" / "case0.nii.gz", *arguments)
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_options_of_label_maps_are_rejected_for_classifiers(runs, images):
    result = run("predict", runs / "plain", images / "bar" / "0.png", "--overlay")
    assert result.exit_code == 2 and "this one classifies" in result.stderr


WITH_PEAK = """
import re, sys, threading, time
from steerformer.cli import app

def watch():
    # The peak since the process last reset the counter, which it does to measure itself. Not ru_maxrss: a process
    # inherits it from its parent.
    global peak
    while True:
        found = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())
        peak = max(peak, int(found[1]))
        time.sleep(0.005)

peak = 0
threading.Thread(target=watch, daemon=True).start()
try:
    app(sys.argv[1:])
finally:
    time.sleep(0.05)
    print("peak", peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux")
def test_volume_larger_than_memory_is_predicted_within_the_limit(volume_run, tmp_path):
    """Peak memory of the process as the system reports it; most labels agree with those without a limit."""

    def peak(shape, memory):
        x, _ = scene(shape, seed=8)
        path = write_nifti(tmp_path / f"{shape[0]}.nii", x.astype(np.int16))
        words = ["predict", volume_run, path, "--out", tmp_path / memory, "--memory", memory]
        command = [sys.executable, "-c", WITH_PEAK, *map(str, words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        taken = int(done.stdout.split()[-1]) * 1024
        reported = float(re.search(rb"peak memory (\d+)M", done.stdout)[1]) * 2**20
        assert reported == pytest.approx(taken, rel=0.02)
        return taken, np.asarray(nibabel.load(tmp_path / memory / path.name).dataobj)

    least, _ = peak((12, 12, 12), "8G")
    whole, expected = peak((80, 72, 77), "8G")
    limit = least + int(0.65 * (whole - least))
    found, labels = peak((80, 72, 77), f"{limit / 2**20:.3f}M")
    assert found <= limit < whole
    assert (labels == expected).mean() > 0.95
