"""ONNX files in onnxruntime: all layers, U-Nets on grids of any size, rotations, and what a file says."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from checks import without_type_checks
from models.small import classifier, monai_unet, settle, unet
from nn.layers import _CORE, LAYERS, randomized, supported_input
from steerformer.exporting.input_grid import input_grid
from steerformer.exporting.onnx_files import onnx_bytes

MORE = (
    *("LayerNorm-floor", "FourierReLU-coarse", "Attention-windowed", "Attention-normalized", "Attention-nowhere"),
    *("Attention-2-heads", "AvgPool-3-stride-2", "Resample-to-5"),
)
CHOSEN = [layer for layer in LAYERS if layer.id in _CORE + MORE]


class Beside(nn.Module):
    """Layers that are applied to parts of one input, one graph for all: torch's converter takes seconds to start."""

    def __init__(self, layers, shapes):
        super().__init__()
        self.layers, self.shapes = nn.ModuleList(layers), shapes
        self.sizes = [int(np.prod(shape)) for shape in shapes]

    def forward(self, x):
        parts = x.split(self.sizes, dim=1)
        pairs = zip(self.layers, parts, self.shapes, strict=True)
        return torch.cat([layer(part.unflatten(1, shape)).flatten(1) for layer, part, shape in pairs], dim=1)

    def outputs(self, x, y):
        """The part of the output ``y`` of each layer, for an input ``x``, and what PyTorch gives."""
        parts = x.split(self.sizes, dim=1)
        expected = [m(p.unflatten(1, s)).flatten(1) for m, p, s in zip(self.layers, parts, self.shapes, strict=True)]
        return zip(y.split([part.shape[1] for part in expected], dim=1), expected, strict=True)


class Grid:
    """As :class:`~steerformer.exporting.input_grid.InputGrid`, for an input of one long axis."""

    free_size = False

    def __init__(self, length):
        self.channels, self.space = length, ()

    def example(self):
        return torch.zeros(2, self.channels)


@pytest.fixture(scope="module", params=[sf.SO2, sf.SO3], ids=repr)
def all_layers(request):
    """Layers, an input of them all, and the output of their ONNX file; attention on grids is the slowest part."""
    torch.manual_seed(0)
    layers = [randomized(layer.values[0](request.param)).eval() for layer in CHOSEN]
    inputs = [supported_input(layer, batch=3) for layer in layers]
    module = Beside(layers, [tuple(x.shape[1:]) for x in inputs]).eval()
    x = torch.cat([x.flatten(1) for x in inputs], dim=1)
    with without_type_checks(), torch.no_grad():
        content = onnx_bytes(module, Grid(x.shape[1]), "{}")
        y = onnxruntime.InferenceSession(content).run(None, {"x": x.numpy()})[0]
        return {layer.id: pair for layer, pair in zip(CHOSEN, module.outputs(x, torch.from_numpy(y)), strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [layer.id for layer in CHOSEN])
def test_layer_gives_the_same_output_in_onnxruntime(all_layers, name):
    found, expected = all_layers[name]
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def exported_unet(tmp_path_factory):
    """A U-Net with attention, pooled and padded levels, its file, and a session; exported for any grid."""
    torch.manual_seed(0)
    with without_type_checks():
        model = settle(unet(sf.SO2, widths=[[2], [4]]), 10)
        file = sf.export(model, tmp_path_factory.mktemp("onnx") / "net.onnx", metadata={"classes": ["a", "b", "c"]})
    return model, file, onnxruntime.InferenceSession(file.path)


@pytest.mark.slow
class TestUNet:
    @pytest.mark.parametrize("size", [(8, 8), (9, 12), (17, 7)])
    def test_any_grid_gives_the_same_logits(self, exported_unet, size, unchecked):
        model, _, session = exported_unet
        x = model.in_type.randn(2, size)
        with torch.no_grad():
            found = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
            assert_close(found, model(x), rtol=1e-4, atol=1e-4)

    def test_rotated_input_gives_rotated_logits(self, exported_unet):
        _, _, session = exported_unet
        x = np.random.default_rng(0).normal(size=(1, 1, 13, 10)).astype(np.float32)
        upright = session.run(None, {"x": x})[0]
        for times in (1, 2, 3):
            rotated = session.run(None, {"x": np.rot90(x, times, axes=(2, 3)).copy()})[0]
            assert abs(rotated - np.rot90(upright, times, axes=(2, 3))).max() < 1e-4 * abs(upright).max()

    def test_file_describes_itself(self, exported_unet):
        _, file, session = exported_unet
        about = json.loads(session.get_modelmeta().custom_metadata_map["steerformer"])
        assert about["steerformer"] == sf.__version__ and about["classes"] == ["a", "b", "c"]
        assert about["input"] == {"channels": 1, "size": [None, None]}
        assert session.get_inputs()[0].shape == ["batch", 1, "height", "width"]
        assert file.free_size and file.difference < 1e-4
        assert [path.name for path in file.path.parent.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_missing_package_is_named(monkeypatch, package, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"need the package {package}: pip install 'steerformer\[export\]'"):
        sf.export(classifier(sf.SO2), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_file_is_not_compared_without_onnxruntime(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr("steerformer.exporting.exporter._WRITERS", {".onnx": lambda *arguments: b"content"})
    assert sf.export(classifier(sf.SO2), tmp_path / "net.onnx").difference is None


def test_input_grid_of_models():
    grid = input_grid(classifier(sf.SO3), None, size=None, free_size=None)
    assert (grid.channels, grid.space, grid.free_size) == (1, (8, 8, 8), False)
    assert input_grid(unet(sf.SO3), None, size=None, free_size=None).free_size


def test_file_of_a_network_that_predicts_in_windows_takes_one_window():
    model = monai_unet(sf.SO2, window=[8, 12])
    assert input_grid(model, None, size=None, free_size=None).space == (8, 12)
    with pytest.raises(ValueError, match=r"predicts in windows of \(8, 12\), one for its file; leave free_size out"):
        input_grid(model, None, size=None, free_size=True)
