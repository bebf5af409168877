"""Outlines of labels."""

import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from steerformer.plots import outlines


def test_outlines_follow_the_labels_in_their_colors():
    labels = torch.zeros(20, 20, 5, dtype=torch.int64)
    labels[4:9, 10:16, 3], labels[12:14, 2:4, 3], labels[0, 0, 1] = 1, 2, 1
    labels[:, 0, :] = -100
    assert outlines.fullest_slice(labels) == 3
    axis = Figure().subplots()
    outlines.draw_slice(axis, torch.rand(1, 20, 20), labels[..., 3], (1.0, 2.0))
    drawn = [found for found in axis.collections if found.get_paths()]
    assert [to_rgb(found.get_edgecolor()[0]) for found in drawn] == [to_rgb(c) for c in outlines.COLORS[:2]]
    box = drawn[0].get_paths()[0].get_extents()  # the first axis of the tensor runs to the right, the second up
    assert (box.x0, box.x1, box.y0, box.y1) == (3.5, 8.5, 9.5, 15.5)
    assert axis.get_aspect() == 2.0


def test_slice_without_labels_is_the_central_one():
    assert outlines.fullest_slice(torch.zeros(2, 2, 7)) == 3


def test_background_has_no_outline_and_full_images_have_one_at_the_border():
    axis = Figure().subplots()
    outlines.draw_outlines(axis, torch.zeros(4, 4).long())
    assert not axis.collections
    outlines.draw_outlines(axis, torch.ones(4, 4).long())
    assert len(axis.collections) == 1


def test_colors_repeat_after_the_last():
    count = len(outlines.COLORS)
    assert [outlines.label_color(label) for label in (1, count, count + 1)] == [
        outlines.COLORS[0],
        outlines.COLORS[-1],
        outlines.COLORS[0],
    ]
