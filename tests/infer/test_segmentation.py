"""Segmentation on the grid of the scan, with any preprocessing."""

import copy
import math
from pathlib import Path

import pytest
import torch

from steerformer import models
from steerformer.data.config import PairsConfig
from steerformer.data.preprocessing import preprocess
from steerformer.infer import WindowMemory, segment, windows
from steerformer.infer.windows import choose_window
from steerformer.io.scans import Scan

SHAPE = (19, 22)


def scan():
    """Noise in a part of an image, 0 elsewhere; pixels of 1 x 1.5."""
    x = torch.zeros(1, *SHAPE)
    x[0, 3:15, 5:20] = torch.rand(12, 15, generator=torch.Generator().manual_seed(0))
    return Scan(x, (1.0, 1.5), Path("noise.png"), "image")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layers = {"degrees": 2, "widths": [[2], [2]], "kernel_size": 3, "depth": 0, "classes": 3, "head": "scalar"}
    model = models.build({"kind": "unet", "group": "SO2", **layers}).eval()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.02, 0.0, -0.02]))  # no ties where the scan is empty
    return model


@pytest.mark.parametrize("changes", [{}, {"crop": 1}, {"spacing": 0.75}, {"size": (14, 13), "crop": 0}])
@pytest.mark.parametrize("probabilities", [False, True])
def test_labels_are_the_best_classes_on_the_grid_of_the_scan(model, changes, probabilities):
    """The oracle: the scores of all classes restored at once."""
    config = PairsConfig(classes=3, **changes)
    case = preprocess(scan().x, scan().spacing, config)
    with torch.no_grad():
        expected = case.restore(model(case.x[None])[0])
    found = segment(model, scan(), config, probabilities=probabilities)
    assert found.labels.shape == SHAPE and torch.equal(found.labels.long(), expected.argmax(0))
    assert len(found.labels.unique()) > 1
    if probabilities:
        inside = (slice(None), *case.box)
        assert torch.allclose(found.probabilities[inside], expected.softmax(0)[inside], atol=1e-6)
        assert torch.allclose(found.probabilities.sum(0), torch.ones(SHAPE))
        assert torch.equal(found.probabilities.argmax(0), found.labels.long())
    else:
        assert found.probabilities is None


def test_cropped_voxels_are_background(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([-9.0, 9.0, -9.0]))
    found = segment(model, scan(), PairsConfig(classes=3, crop=0)).labels
    assert (found[3:15, 5:20] == 1).all() and found.sum() == 12 * 15
    certain = segment(model, scan(), PairsConfig(classes=3, crop=0), probabilities=True).probabilities
    assert (certain[:, :3] == torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)).all() and certain[0, 3:15, 5:20].max() < 0.5


@pytest.mark.parametrize("changes", [{}, {"spacing": 0.5}])
def test_memory_needed_to_write_the_results_is_reserved(model, changes, monkeypatch):
    """Windows would fit, but the probabilities of all classes would not."""
    reserved = {}

    def choose(*arguments, later, **options):
        reserved[later] = True
        return choose_window(*arguments, later=later, **options)

    monkeypatch.setattr(windows, "choose_window", choose)
    for probabilities in (False, True):
        segment(model, scan(), PairsConfig(classes=3, **changes), probabilities=probabilities, memory=2**40)
    few, many = (later / math.prod(SHAPE) for later in reserved)
    assert few >= 1 and many - few >= 2 * 4 * 3  # restored and as written, in float32
    with pytest.raises(ValueError, match=r"not enough: a volume of 20 x 30 takes [5-9]\.[0-9]G even with"):
        choose_window(WindowMemory(model), (20, 30), 3, 2**30, later=5 * 2**30)
