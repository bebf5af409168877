"""``steerformer data``."""

import errno
import os

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from data.makers import write_clouds, write_idx
from data.scan_files import write_decathlon, write_pairs, write_ph2
from steerformer import models
from steerformer.cli import app
from steerformer.cli.data import NAMES


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def write_folder(root, *, shape=(8, 8), kind="png"):
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            values = np.random.default_rng(number).integers(0, 256, size=shape).astype(np.uint8)
            path = root / name / f"{number}.{kind}"
            np.save(path, values) if kind == "npy" else Image.fromarray(values).save(path)
    return root


def check(result, path, *words):
    assert result.exit_code == 0, result.output
    for word in words:
        assert word in result.output
    with Image.open(path) as image:
        assert image.format == "PNG" and np.asarray(image.convert("L")).std() > 5


def test_digits_are_preprocessed_and_drawn(tmp_path):
    write_idx(tmp_path / "mnist", train=60)
    path = tmp_path / "pictures" / "digits.png"
    result = run("rotmnist", "validation=6", "--root", tmp_path / "mnist", "--picture", path)
    check(result, path, "idx files", "validation", "checked, and cached in", f"wrote {path}")
    assert result.output.split("all")[1].split()[:6] == ["│", "50", "│", "6", "│", "14"]


def test_point_clouds_are_preprocessed_and_drawn(tmp_path):
    write_clouds(tmp_path / "clouds.npz")
    path = tmp_path / "clouds.png"
    check(run("modelnet10", "size=8", "--root", tmp_path, "--picture", path), path, "night_stand", "clouds.npz")


@pytest.mark.parametrize("shape, kind, channels", [((8, 8), "png", 1), ((8, 6, 3), "png", 3), ((8, 8, 8), "npy", 1)])
def test_folders_are_checked_and_drawn(tmp_path, shape, kind, channels):
    root = write_folder(tmp_path / "animals", shape=shape, kind=kind)
    path = tmp_path / "animals.png"
    result = run("folder", f"channels={channels}", "size=8", "--root", root, "--picture", path)
    check(result, path, "8 images of 2 classes" if kind == "png" else "8 volumes of 2 classes", "cat", "dog")


def columns(result, row):
    return [word for word in result.output.split(row)[1].split("\n")[0].split() if word.isdigit()]


def test_photographs_are_preprocessed_and_drawn(tmp_path):
    path = tmp_path / "ph2.png"
    few = ("train=3", "validation=1", "test=2")
    result = run("ph2", *few, "--root", write_ph2(tmp_path / "archive"), "--picture", path)
    check(result, path, "6 photographs", "cases with", "lesion", "checked, and cached in")
    assert columns(result, "all") == columns(result, "lesion") == ["3", "1", "2"]


def test_decathlon_tasks_are_preprocessed_and_drawn(tmp_path):
    path = tmp_path / "task.png"
    root = write_decathlon(tmp_path / "task", modalities=2, classes=4)
    result = run("decathlon", "test_rotation=any", "patch_size=6", "--root", root, "--picture", path)
    check(result, path, "6 volumes of Blobs", "M0, M1", "core", "more")
    assert columns(result, "all") == ["4", "1", "1"]


@pytest.mark.parametrize("kind", ["png", "npy"])
def test_pairs_are_preprocessed_and_drawn(tmp_path, kind):
    path = tmp_path / "pairs.png"
    result = run("pairs", "test=0", "--root", write_pairs(tmp_path / "mine", kind=kind), "--picture", path)
    check(result, path, "5 images with labels" if kind == "png" else "5 volumes with labels", "foreground")
    assert columns(result, "all") == ["4", "1", "0"]


def test_unmatched_pairs_end_with_one_line_and_code_2(tmp_path):
    root = write_pairs(tmp_path / "mine")
    (root / "masks" / "scan3.png").rename(root / "masks" / "scan9.png")
    result = run("pairs", "--root", root, "--picture", tmp_path / "p.png")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "masks for scan3; no image in" in result.stderr and "images for scan9." in result.stderr


def test_figure_has_a_default_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(run("folder", "size=8", "--root", write_folder(tmp_path / "animals")), tmp_path / "folder.png")


def test_only_earlier_figures_are_overwritten_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = write_folder(tmp_path / "animals")
    for _ in range(2):
        check(run("folder", "size=8", "--root", root), tmp_path / "folder.png")
    Image.new("L", (4, 4)).save("folder.png")
    before = (tmp_path / "folder.png").read_bytes()
    result = run("folder", "size=8", "--root", root)
    assert result.exit_code == 2 and "folder.png exists and was not written by 'steerformer data'" in result.stderr
    assert (tmp_path / "folder.png").read_bytes() == before
    check(run("folder", "size=8", "--root", root, "--picture", "folder.png"), tmp_path / "folder.png")


def test_data_of_an_experiment_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "animals")
    model = {"kind": "classifier", "group": "SO2", "size": 8, "classes": 2}
    values = {"model": model, "data": {"name": "folder", "root": "animals", "size": 8, "test": 0.5}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    result = run("mine.yaml")
    check(result, tmp_path / "mine.png", "8 images of 2 classes")
    assert result.output.split("all")[1].split()[:6] == ["│", "4", "│", "0", "│", "4"]
    result = run("mine.yaml", "data.validation=0.5")
    assert result.output.split("all")[1].split()[:6] == ["│", "2", "│", "2", "│", "4"]
    (tmp_path / "animals").rename(tmp_path / "7")
    check(run("mine.yaml", "--root", "7"), tmp_path / "mine.png", "8 images")
    result = run("mine.yaml", "data.sizes=3")
    assert result.exit_code == 2 and "did you mean 'size'?" in result.stderr


def test_data_of_a_preset_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset = next(name for name in models.presets() if models.preset(name)["data"]["name"] == "modelnet10")
    result = run(preset, "--root", "nowhere")
    assert result.exit_code == 2 and "there is no folder nowhere" in result.stderr


def test_help_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run("--help").output
    lines = [line.strip() for line in text.splitlines()]
    for name in ("folder --root DIR size=64 channels=3", "ph2 --root DIR", "pairs --root DIR classes=3"):
        assert f"steerformer data {name}" in lines
    assert "only an earlier such figure" in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ("imagenet",),
            "there is no data set 'imagenet'; known: rotmnist, modelnet10, folder, ph2, decathlon, "
            "pairs, presets and YAML files.",
        ),
        (("nowhere.yaml",), "cannot read nowhere.yaml"),
        (("modelnet10",), "modelnet10 needs a root"),
        (("folder", "sizes=3"), "did you mean 'size'?"),
        (("folder", "size=-3"), "size"),
        (("folder", "size"), "expected key=value"),
        (("ph2",), "ph2 needs a root"),
        (("decathlon",), "decathlon needs a root"),
        (("pairs",), "pairs needs a root"),
        (("pairs", "patch_sizes=3"), "did you mean 'patch_size'?"),
        (("pairs", "classes=[lesion, hair]"), "the first class is background"),
        (("decathlon", "test=-1"), "a number of cases, or a fraction of them from 0 to 1, got -1"),
        (("decathlon", "spacing=1", "size=3"), "size and spacing both define the resampling"),
        (("rotmnist", "--root", "nowhere"), "there is no folder nowhere; get MNIST: https://yann.lecun.com"),
        (("modelnet10", "--root", "nowhere"), "modelnet.cs.princeton.edu"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.startswith("steerformer: ") and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_all_data_sets():
    result = run("--help")
    assert result.exit_code == 0
    assert all(name in result.output for name in (*NAMES, "STEERFORMER_CACHE"))


def spoil_truncated(root):
    path = root / "dog" / "2.png"
    path.write_bytes(path.read_bytes()[:50])


def spoil_empty(root):
    for path in (root / "dog").iterdir():
        path.unlink()


@pytest.mark.parametrize("spoil, message", [(spoil_truncated, "dog/2.png"), (spoil_empty, "dog is empty")])
def test_unreadable_files_end_with_one_line_and_code_2(tmp_path, spoil, message):
    root = write_folder(tmp_path / "animals")
    spoil(root)
    result = run("folder", "size=8", "--root", root, "--picture", tmp_path / "p.png")
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "p.png").exists()


def test_figure_that_cannot_be_written_leaves_no_file(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "animals")
    (tmp_path / "file").write_text("")
    result = run("folder", "size=8", "--root", root, "--picture", tmp_path / "file" / "p.png")
    assert result.exit_code == 2 and "cannot read or write" in result.stderr and "file" in result.stderr

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = run("folder", "size=8", "--root", root, "--picture", tmp_path / "p.png")
    assert result.exit_code == 2 and "p.png: No space left on device" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["animals", "file"]
