"""Labels on the grid of the scan, whatever was done to it before the network saw it."""

import copy
import math
from pathlib import Path

import pytest
import torch

from steerformer import models
from steerformer.data.config import PairsConfig
from steerformer.data.prepare import prepare
from steerformer.data.scans import Scan
from steerformer.infer import Appetite, segment, windows
from steerformer.infer.modalities import name_of, scans_of
from steerformer.infer.windows import choose_window

SHAPE = (19, 22)


def scan():
    """Noise in a part of an image, 0 around it, in pixels of 1 x 1.5."""
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
    """The oracle: all scores of the network brought back at once."""
    config = PairsConfig(classes=3, **changes)
    prepared = prepare(scan().x, scan().spacing, config)
    with torch.no_grad():
        expected = prepared.restore(model(prepared.x[None])[0])
    found = segment(model, scan(), config, probabilities=probabilities)
    assert found.labels.shape == SHAPE and torch.equal(found.labels.long(), expected.argmax(0))
    assert len(found.labels.unique()) > 1
    if probabilities:
        inside = (slice(None), *prepared.box)
        assert torch.allclose(found.probabilities[inside], expected.softmax(0)[inside], atol=1e-6)
        assert torch.allclose(found.probabilities.sum(0), torch.ones(SHAPE))
        assert torch.equal(found.probabilities.argmax(0), found.labels.long())
    else:
        assert found.probabilities is None


def test_what_was_cropped_is_background(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([-9.0, 9.0, -9.0]))
    found = segment(model, scan(), PairsConfig(classes=3, crop=0)).labels
    assert (found[3:15, 5:20] == 1).all() and found.sum() == 12 * 15
    certain = segment(model, scan(), PairsConfig(classes=3, crop=0), probabilities=True).probabilities
    assert (certain[:, :3] == torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)).all() and certain[0, 3:15, 5:20].max() < 0.5


@pytest.mark.parametrize("changes", [{}, {"spacing": 0.5}])
def test_what_is_written_in_the_end_counts_as_memory(model, changes, monkeypatch):
    """Windows would fit, but not the probabilities of all classes."""
    told = {}

    def choose(*arguments, later, **options):
        told[later] = True
        return choose_window(*arguments, later=later, **options)

    monkeypatch.setattr(windows, "choose_window", choose)
    for probabilities in (False, True):
        segment(model, scan(), PairsConfig(classes=3, **changes), probabilities=probabilities, memory=2**40)
    few, many = (later / math.prod(SHAPE) for later in told)
    assert few >= 1 and many - few >= 2 * 4 * 3  # restored and as written, in single precision
    with pytest.raises(ValueError, match=r"too little: a volume of 20 x 30 takes 5\.[0-9]G in all"):
        choose_window(Appetite(model), (20, 30), 3, 2**30, later=5 * 2**30)


def test_files_of_modalities_are_put_together_and_others_left_alone():
    files = [Path(name) for name in ("b_0001.nii", "x/a_0001.nii.gz", "x/a_0000.nii.gz", "y/a_0000.nii.gz", "c.nii")]
    grouped = scans_of(files, 2)
    assert grouped == [(files[0],), (files[2], files[1]), (files[3],), (files[4],)]
    assert [name_of(scan) for scan in grouped] == [
        ("b_0001", ".nii"), ("a", ".nii.gz"), ("a_0000", ".nii.gz"), ("c", ".nii"),
    ]  # fmt: skip
    assert scans_of(files, 1) == [(file,) for file in files]
    numbered = [Path(f"case_{i:04d}.nii") for i in range(5)]
    assert scans_of(numbered, 4) == [(file,) for file in numbered]  # five are too many to be modalities


def test_a_file_that_is_named_twice_is_not_two_modalities():
    one, two = Path("a_0000.nii"), Path("a_0001.nii")
    assert scans_of([one, one], 2) == [(one,)] == scans_of([one, one], 1)
    assert scans_of([two, one, two], 2) == [(one, two)]
