"""``steerformer export``: files with descriptions, and one-line errors."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import steerformer as sf
from checks import without_type_checks
from steerformer.cli import app
from steerformer.exporting import describe_run

pytestmark = pytest.mark.usefixtures("unchecked")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def exported(image_run, tmp_path_factory):
    """A segmentation run as TorchScript, and the command's output."""
    path = tmp_path_factory.mktemp("exported") / "net.pt"
    with without_type_checks():
        return path, run("export", image_run, "--out", path)


def test_file_holds_the_best_weights(exported, image_run):
    path, result = exported
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"wrote {path}, ") and "agrees with the model within" in result.output
    model, x = sf.open_run(image_run).model, torch.rand(1, 1, 17, 22)
    with torch.no_grad():
        assert torch.allclose(_load(path)(x), model(x), atol=1e-5)


def test_file_describes_the_run(exported, image_run):
    extra = {"steerformer.json": ""}
    _load(exported[0], extra)
    about = json.loads(extra["steerformer.json"])
    assert about == about | {
        "steerformer": sf.__version__,
        "task": "segmentation",
        "kind": "image",
        "classes": list(sf.open_run(image_run).classes),
        "preprocessing": {"crop": None, "size": [16, 18], "spacing": None, "normalize": "nonzero"},
        "spacing": [1.0, 1.0],
        "patch_size": None,
        "input": {"channels": 1, "size": [None, None]},
    }


def test_existing_file_is_kept_unless_forced(exported, image_run):
    path, _ = exported
    result = run("export", image_run, "--out", path)
    assert result.exit_code == 2 and "--force" in result.stderr and result.stderr.count("\n") == 1


def test_classifier_has_its_grid_and_class_names(runs):
    about = describe_run(sf.open_run(runs / "steerable"))
    assert about["task"] == "classification" and about["classes"] == ["bar", "spot"]
    assert about["preprocessing"] == {"fit": 12, "normalize": "none"}


@pytest.mark.slow
def test_size_can_be_fixed(image_run, tmp_path):
    result = run("export", image_run, "--out", tmp_path / "net.pt", "--fixed-size")
    assert result.exit_code == 0, result.output
    extra = {"steerformer.json": ""}
    _load(tmp_path / "net.pt", extra)
    assert json.loads(extra["steerformer.json"])["input"]["size"] == [16, 18]  # of all cases: there are no patches


@pytest.mark.slow
def test_size_that_the_run_does_not_have_cannot_be_fixed(volume_run, tmp_path):
    result = run("export", volume_run, "--out", tmp_path / "net.pt", "--fixed-size")
    assert result.exit_code == 2 and "needs data.patch_size or data.size" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "words"),
    [("net.tflite", "export writes .onnx, .pt2, .pt files"), ("none/net.pt", "there is no folder")],
)
def test_wrong_file_ends_with_one_line_and_code_2(image_run, tmp_path, out, words):
    result = run("export", image_run, "--out", tmp_path / out)
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


def test_folder_without_a_run_is_rejected(tmp_path):
    result = run("export", tmp_path)
    assert result.exit_code == 2 and "is not a run folder" in result.stderr


def test_missing_package_is_named(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    result = run("export", runs / "plain")
    assert result.exit_code == 2 and "pip install 'steerformer[export]'" in result.stderr
    assert not (runs / "plain" / "model.onnx").exists()


@pytest.mark.slow
def test_onnx_file_runs_by_the_example_without_torch_and_steerformer(runs, images, tmp_path):
    """``examples/run_onnx.py`` names the class that ``predict`` names."""
    assert run("export", runs / "steerable", "--out", tmp_path / "net.onnx").exit_code == 0
    example = Path(__file__).parents[2] / "examples" / "run_onnx.py"
    blocked = "import sys, runpy; sys.modules.update(steerformer=None, torch=None); sys.argv = sys.argv[1:]; "
    command = [sys.executable, "-c", blocked + "runpy.run_path(sys.argv[0], run_name='__main__')", str(example)]
    for name in ("bar", "spot"):
        file = images / name / "0.png"
        np.save(tmp_path / "x.npy", np.asarray(Image.open(file))[None])
        done = subprocess.run(
            [*command, str(tmp_path / "net.onnx"), str(tmp_path / "x.npy")], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str({sf.open_run(runs / "steerable").predict(file)[0].label: 1})


def _load(path, extra=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(path, _extra_files=extra)
