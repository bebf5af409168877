"""The scripts in examples/: short, and each does what it says."""

import importlib.util
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from steerformer.data.preprocessing import normalize

EXAMPLES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))}
FIGURE = r"([\d.]+(?:e[+-]?\d+)?)"


def run(name, capsys):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    return capsys.readouterr().out


def figures(pattern, text):
    return [float(figure) for figure in re.findall(pattern.replace("FIGURE", FIGURE), text)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_short_and_says_what_it_shows(name):
    text = EXAMPLES[name].read_text()
    assert len(text.splitlines()) < 60 and text.startswith('"""')


@pytest.mark.slow
def test_steerable_vit_learns_and_is_invariant(capsys):
    text = run("steerable_vit", capsys)
    assert figures(r"accuracy FIGURE%", text)[0] > 90
    assert figures(r"90 degrees: FIGURE", text)[0] < 1e-4


@pytest.mark.slow
def test_vector_output_learns_gradients(capsys):
    text = run("vector_output", capsys)
    errors = figures(r"-> FIGURE", text)
    assert len(errors) == 2 and max(errors) < 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning warns about its own use of torch and about few workers
def test_lightning_module_trains(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = run("lightning_module", capsys)
    assert figures(r"loss FIGURE", text)[0] < 0.4


@pytest.mark.slow
def test_monai_pipeline_segments_and_keeps_metadata(capsys):
    text = run("monai_pipeline", capsys)
    assert figures(r"Dice FIGURE%", text)[0] > 50 and "voxel spacing kept: 2 mm" in text


def test_own_nonlinearity_is_equivariant_and_its_control_is_not(capsys):
    text = run("own_nonlinearity", capsys)
    assert max(figures(r"NormSoftplus: relative equivariance error FIGURE", text)) < 1e-12
    assert min(figures(r"ChannelSoftplus: relative equivariance error FIGURE", text)) > 0.1


@pytest.mark.slow
def test_report_shows_errors_of_one_own_model(capsys):
    text = run("equivariance_report", capsys)
    assert max(figures(r"pooling, \d+ degrees: relative error FIGURE", text)) < 0.05
    assert figures(r"nn.Conv2d, 90 degrees: relative error FIGURE", text)[0] > 0.1


@pytest.mark.slow
def test_exported_network_is_equivariant(capsys):
    text = run("onnx_export", capsys)
    assert figures(r"from PyTorch: FIGURE", text)[0] < 1e-4
    assert figures(r"at 90 degrees: FIGURE", text)[0] < 1e-4


METHODS = ("background", "nonzero", "image", "none")


@pytest.mark.parametrize("scene", ["noisy", "masked", "cropped"])
def test_runner_of_onnx_files_normalizes_as_the_library(scene):
    """In a process without steerformer; see tests/cli/test_export.py for a whole file."""
    x = np.random.default_rng(0).normal(100, 5, size=(2, 14, 12, 13))
    if scene != "cropped":
        x[:, 4:10, 3:9, 4:9] += 200
    if scene == "masked":
        x[x < 150] = 0
    script = (
        "import sys, json, runpy; sys.modules.update(steerformer=None, torch=None); import numpy as np; "
        f"example = runpy.run_path({str(EXAMPLES['run_onnx'])!r}); x = np.array(json.load(sys.stdin)); "
        f"print(json.dumps([example['normalize'](x.copy(), method).tolist() for method in {METHODS}]))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=json.dumps(x.tolist()), capture_output=True, text=True, check=True)
    for method, found in zip(METHODS, json.loads(done.stdout), strict=True):
        expected = normalize(torch.from_numpy(x), method).numpy()
        np.testing.assert_allclose(np.array(found), expected, atol=1e-5, err_msg=method)


@pytest.mark.slow
def test_registration_learns_displacements_that_rotate_with_the_images(capsys):
    text = run("cross_attention_registration", capsys)
    before, after = figures(r"displacements FIGURE", text), figures(r"-> FIGURE", text)
    assert len(after) == 2 and max(after) < 0.7 < 1.0 < min(before)
    assert max(figures(r"90 degrees: FIGURE", text)) < 1e-4
