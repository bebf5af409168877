"""Figures of example cases."""

from pathlib import Path

import numpy as np
import pytest
import torch

from steerformer.infer.evaluation import ExampleCase
from steerformer.io.scans import Scan
from steerformer.plots.case_examples import case_examples

CLASSES = ("background", "one", "two")


def case(shape, at, channels=1):
    """A box of label 1; the prediction has it shifted by two voxels, and a spurious box of label 2."""
    truth, predicted = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    box = tuple(slice(start, start + 4) for start in at)
    truth[box] = 1
    predicted[tuple(slice(part.start + 2, part.stop + 2) for part in box)] = 1
    predicted[tuple(slice(0, 2) for _ in shape)] = 2
    kind = "image" if len(shape) == 2 else "volume"
    scan = Scan(torch.rand(channels, *shape), (1.0,) * len(shape), Path("p1"), kind, labels=truth)
    return ExampleCase("best: p1, Dice 50 %", scan, predicted)


def test_truth_is_drawn_above_the_prediction():
    figure = case_examples([case((12, 16), (2, 3), channels=3), case((20, 14), (5, 5), channels=3)], classes=CLASSES)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["best: p1, Dice 50 %\ntruth"] * 2 + ["prediction"] * 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    outlines = [_extent(axes) for axes in figure.axes]
    assert outlines[0] == [(1.5, 5.5, 2.5, 6.5)]  # rows and columns of the true box
    assert sorted(outlines[2]) == [(-0.5, 1.5, -0.5, 1.5), (3.5, 7.5, 4.5, 8.5)]


def test_volumes_are_drawn_as_the_central_slice_of_the_truth():
    example = case((10, 11, 12), (2, 3, 4))
    figure = case_examples([example], classes=CLASSES)
    shown = figure.axes[0].images[0].get_array()
    gray = example.scan.x[0, :, :, 6].mT  # the box has slices 4 to 7
    assert np.corrcoef(np.asarray(shown).ravel(), gray.numpy().ravel())[0, 1] > 0.99
    assert [_extent(axes) for axes in figure.axes] == [[(2.5, 6.5, 1.5, 5.5)], [(4.5, 8.5, 3.5, 7.5)]]


@pytest.mark.parametrize(("shape", "channels"), [((12, 16), 3), ((10, 11, 12), 1)])
def test_confidential_scans_are_drawn_as_outlines_only(shape, channels):
    example = case(shape, (2, 3, 4)[: len(shape)], channels)
    with_scans, without = (case_examples([example], classes=CLASSES, scans=scans) for scans in (True, False))
    for axes, bare in zip(with_scans.axes, without.axes, strict=True):
        drawn, blank = (np.asarray(each.images[0].get_array()) for each in (axes, bare))
        assert drawn.std() > 0.1 and drawn.shape == blank.shape and np.unique(blank).size == 1
        assert _extent(bare) == _extent(axes) != []


def _extent(axes):
    """First and last row and column of each outline."""
    found = []
    for outline in axes.collections:
        points = np.concatenate([path.vertices for path in outline.get_paths()])
        (left, low), (right, high) = points.min(0), points.max(0)
        found.append((low, high, left, right))
    return found
