"""Pictures of good and bad cases."""

import numpy as np
import pytest
import torch

from steerformer.infer.examples import Example, best_median_worst, examples_picture

CLASSES = ("background", "one", "two")


def case(shape, at, channels=1):
    """A box of label 1, and the same moved by two voxels as the prediction, with something of label 2."""
    truth, predicted = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    box = tuple(slice(start, start + 4) for start in at)
    truth[box] = 1
    predicted[tuple(slice(part.start + 2, part.stop + 2) for part in box)] = 1
    predicted[tuple(slice(0, 2) for _ in shape)] = 2
    return Example("best: p1, Dice 50 %", torch.rand(channels, *shape), truth, predicted, (1.0,) * len(shape))


def test_three_scores_are_chosen_and_those_without_are_left_out():
    assert best_median_worst([0.2, 0.9, None, 0.4, 0.1]) == {"best": 1, "median": 0, "worst": 4}
    assert best_median_worst([0.2, 0.9]) == {"best": 1, "worst": 0}
    assert best_median_worst([None, 0.9]) == {"best": 1}
    assert best_median_worst([None]) == {}


def test_truth_stands_above_the_prediction():
    figure = examples_picture([case((12, 16), (2, 3), channels=3), case((20, 14), (5, 5), channels=3)], classes=CLASSES)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["best: p1, Dice 50 %\ntruth"] * 2 + ["prediction"] * 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    outlines = [_extent(axes) for axes in figure.axes]
    assert outlines[0] == [(1.5, 5.5, 2.5, 6.5)]  # rows and columns of the true box
    assert sorted(outlines[2]) == [(-0.5, 1.5, -0.5, 1.5), (3.5, 7.5, 4.5, 8.5)]


def test_of_volumes_the_slice_through_the_middle_of_the_truth_is_shown():
    example = case((10, 11, 12), (2, 3, 4))
    figure = examples_picture([example], classes=CLASSES)
    shown = figure.axes[0].images[0].get_array()
    gray = example.x[0, :, :, 6].mT  # of slices 4 to 7
    assert np.corrcoef(np.asarray(shown).ravel(), gray.numpy().ravel())[0, 1] > 0.99
    assert [_extent(axes) for axes in figure.axes] == [[(2.5, 6.5, 1.5, 5.5)], [(4.5, 8.5, 3.5, 7.5)]]


@pytest.mark.parametrize(("shape", "channels"), [((12, 16), 3), ((10, 11, 12), 1)])
def test_scans_that_may_not_be_shown_leave_their_outlines(shape, channels):
    example = case(shape, (2, 3, 4)[: len(shape)], channels)
    with_scans, without = (examples_picture([example], classes=CLASSES, scans=scans) for scans in (True, False))
    for axes, bare in zip(with_scans.axes, without.axes, strict=True):
        seen, paper = (np.asarray(each.images[0].get_array()) for each in (axes, bare))
        assert seen.std() > 0.1 and seen.shape == paper.shape and np.unique(paper).size == 1
        assert _extent(bare) == _extent(axes) != []


def _extent(axes):
    """Rows and columns that the outlines span."""
    found = []
    for outline in axes.collections:
        points = np.concatenate([path.vertices for path in outline.get_paths()])
        (left, low), (right, high) = points.min(0), points.max(0)
        found.append((low, high, left, right))
    return found
