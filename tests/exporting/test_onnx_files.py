"""ONNX files in onnxruntime: U-Nets on grids of any size, rotations, and what a file says."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from checks import without_type_checks
from models.small import classifier, monai_unet, settle, unet
from steerformer.exporting.input_grid import input_grid


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
