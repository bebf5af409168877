"""Files of torch: TorchScript of every model, torch.export, and errors of ``sf.export``."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from models.small import STEMS, classifier, monai_unet, plain, settle, unet
from nn.layers import features, image

pytestmark = [pytest.mark.usefixtures("unchecked")]
WITHOUT_STEERFORMER = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.modules["steerformer"] = None
import numpy, torch
path, inputs, outputs = sys.argv[1:]
extra = {"steerformer.json": ""}
if path.endswith(".pt2"):
    net = torch.export.load(path, extra_files=extra).module()
else:
    net = torch.jit.load(path, _extra_files=extra)
    print(*{module.original_name for module in net.modules()})
with torch.no_grad():
    numpy.save(outputs, net(torch.from_numpy(numpy.load(inputs))).numpy())
print(json.dumps(json.loads(extra["steerformer.json"])))
"""
MODELS = {
    "classifier": lambda group: classifier(group, depth=1, qk_norm=2.0, window=1.5, radial="smooth"),
    "classifier, fourier": lambda group: classifier(group, nonlinearity="fourier", mlp_nonlinearity="fourier"),
    "cnn": plain,
    "unet": lambda group: unet(group, widths=[[2], [4]]),
    "unet, local attention": lambda group: unet(group, widths=[[2], [4]], radius=1.5, falloff=0.5),
    "unet, absolute": lambda group: unet(group, pool=[3, 2], head="absolute", depth=0),
    "unet, stem": lambda group: unet(group, **STEMS["stem, fourier"]),
    "monai": monai_unet,
    "monai in windows": lambda group: monai_unet(group, window=[8] * group.dim),
    "dynunet": lambda group: monai_unet(group, architecture="dynunet", channels=[4, 8, 8]),
}


def run_without_steerformer(path, x, folder):
    np.save(folder / "x.npy", x.numpy())
    command = [sys.executable, "-c", WITHOUT_STEERFORMER, path, folder / "x.npy", folder / "y.npy"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.from_numpy(np.load(folder / "y.npy")), done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_torchscript_of_every_model_agrees(name, group, tmp_path):
    """``export`` compares the file itself, U-Nets also on odd and even grids; all models are steered or MONAI's."""
    model = settle(MODELS[name](group), 8 if name in ("classifier", "classifier, fourier", "cnn") else 12)
    found = sf.export(model, tmp_path / "net.pt")
    assert found.difference < 1e-5 and found.free_size == (hasattr(model, "stride") and "windows" not in name)


@pytest.mark.slow
def test_local_attention_takes_grids_far_larger_than_its_radius(tmp_path):
    """A program of torch.export has no limit on the grid, although the radius is beyond the grid of its example."""
    model = settle(MODELS["unet, local attention"](sf.SO2), 12)
    sf.export(model, tmp_path / "net.pt2")
    x = model.in_type.randn(1, (30, 26))
    found, _ = run_without_steerformer(tmp_path / "net.pt2", x, tmp_path)
    with torch.no_grad():
        assert_close(found, model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_torchscript_runs_without_steerformer_and_has_plain_convolutions(tmp_path):
    model = settle(MODELS["unet"](sf.SO2), 12)
    sf.export(model, tmp_path / "net.pt", metadata={"classes": ["a", "b", "c"]})
    x = model.in_type.randn(2, (11, 14))
    found, (kinds, about) = run_without_steerformer(tmp_path / "net.pt", x, tmp_path)
    with torch.no_grad():
        assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    assert "Conv2d" in kinds.split() and "Conv" not in kinds.split()
    assert json.loads(about)["classes"] == ["a", "b", "c"] and json.loads(about)["steerformer"] == sf.__version__


@pytest.mark.slow
def test_torch_export_program_runs_without_steerformer(tmp_path):
    model = settle(classifier(sf.SO2, widths=[[2], [4]], window=1.5), 8)
    found = sf.export(model, tmp_path / "net.pt2")
    assert found.difference < 1e-5
    x = model.in_type.randn(1, 8)
    found, (about,) = run_without_steerformer(tmp_path / "net.pt2", x, tmp_path)
    with torch.no_grad():
        assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    assert json.loads(about)["input"] == {"channels": 1, "size": [8, 8]}


def test_own_network_is_compared_on_real_inputs(tmp_path):
    net = nn.Sequential(sf.nn.Conv(image(sf.SO2), features(sf.SO2), kernel_size=3), sf.nn.Invariants(features(sf.SO2)))
    found = sf.export(net.double(), tmp_path / "net.pt", inputs=torch.rand(1, 2, 9, 8), free_size=True)
    assert found.difference < 1e-5 and next(net.parameters()).dtype == torch.float64


class FixesTheSize(nn.Module):
    """The mean over positions, divided by the size of the first grid instead of that of each."""

    def __init__(self):
        super().__init__()
        self.in_type = image(sf.SO2)

    def forward(self, x):
        return x.sum(dim=(2, 3)) / float(x.shape[2] * x.shape[3])


def test_file_that_disagrees_is_not_written(tmp_path):
    """The negative control: torch.jit.trace keeps a Python number of the first input."""
    with pytest.raises(ValueError, match=r"net.pt would differ from the model by .*, more than 1e-04, and was not"):
        sf.export(FixesTheSize(), tmp_path / "net.pt", size=8, free_size=True)
    assert not list(tmp_path.iterdir())
    assert sf.export(FixesTheSize(), tmp_path / "net.pt", size=8).difference < 1e-6


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("net.h5", {}, r"export writes .onnx, .pt2, .pt files, got 'net.h5'"),
        ("none/net.pt", {}, r"there is no folder .*none to write net.pt into"),
        ("net.pt", {"free_size": True}, "a classifier has a grid of fixed size"),
        ("net.pt", {"inputs": torch.zeros(1, 3, 8, 8)}, r"inputs have shape \(batch, 1, axis 0, axis 1\), got"),
        ("net.pt", {"size": 9}, r"this model takes a batch of shape"),
    ],
)
def test_wrong_arguments_are_rejected(path, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sf.export(classifier(sf.SO2), tmp_path / path, **options)


def test_size_of_own_network_is_required(tmp_path):
    with pytest.raises(ValueError, match=r"give size, such as size=32, or inputs"):
        sf.export(nn.Sequential(sf.nn.Conv(image(sf.SO2), features(sf.SO2), kernel_size=3)), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"the model and its layers have no in_type"):
        sf.export(nn.Linear(2, 3), tmp_path / "net.pt", size=8)
