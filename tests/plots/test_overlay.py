"""Overlays: slices, orientation and outlines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from steerformer.io.scans import Scan
from steerformer.plots.overlay import overlay, write_overlay

CLASSES = ("background", "kernel", "shell")


def volume():
    """A volume whose values increase along every axis, with a box of labels off its center."""
    x = torch.stack(torch.meshgrid(*(torch.arange(n).float() for n in (10, 12, 14)), indexing="ij")).sum(0)[None]
    labels = torch.zeros(10, 12, 14, dtype=torch.uint8)
    labels[6:9, 2:5, 9:12] = 1
    return x, labels


def outline(axes):
    """Left, right, lower and upper end of each outline, in voxels."""
    lines = [np.concatenate([path.vertices for path in found.get_paths()]) for found in axes.collections]
    return [tuple(float(v) for v in (p[:, 0].min(), p[:, 0].max(), p[:, 1].min(), p[:, 1].max())) for p in lines]


def names(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_slices_pass_through_the_center_of_the_labels():
    x, labels = volume()
    figure = overlay(x, labels, classes=CLASSES, spacing=(1.0, 2.0, 3.0))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["sagittal, 8 of 10", "coronal, 4 of 12", "axial, 11 of 14"]
    assert [outline(axes) for axes in figure.axes] == [
        [(1.5, 4.5, 8.5, 11.5)],  # anterior to the right, superior at the top
        [(5.5, 8.5, 8.5, 11.5)],
        [(5.5, 8.5, 1.5, 4.5)],
    ]
    shown = figure.axes[0].images[0].get_array()
    assert shown.shape == (14, 12) and shown[3, 2] < shown[4, 2] and shown[3, 2] < shown[3, 3]
    assert all(axes.get_ylim()[0] < axes.get_ylim()[1] for axes in figure.axes)
    assert [axes.get_aspect() for axes in figure.axes] == [1.5, 3.0, 2.0]
    assert names(figure) == ["kernel"]


def test_images_are_upright_and_in_color():
    x, labels = torch.rand(3, 20, 30), torch.zeros(20, 30, dtype=torch.uint8)
    labels[:5, 4:8], labels[10:12, 20:30] = 1, 2
    figure = overlay(x, labels, classes=CLASSES)
    (axes,) = figure.axes
    assert axes.images[0].get_array().shape == (20, 30, 3) and axes.get_ylim()[0] > axes.get_ylim()[1]
    assert outline(axes) == [(3.5, 7.5, -0.5, 4.5), (19.5, 29.5, 9.5, 11.5)]
    assert names(figure) == ["kernel", "shell"]


@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
def test_legend_says_if_nothing_was_found(shape):
    figure = overlay(torch.zeros(2, *shape), torch.zeros(shape, dtype=torch.uint8), classes=CLASSES)
    assert figure.legends[0].get_title().get_text() == "nothing found"


@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
def test_overlay_is_written_as_png(shape, tmp_path):
    scan = Scan(torch.rand(1, *shape), (1.0,) * len(shape), Path("a"), "image" if len(shape) == 2 else "volume")
    write_overlay(scan, torch.ones(shape, dtype=torch.uint8), tmp_path / "a.png", classes=CLASSES)
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG" and min(image.size) > 100


def test_large_images_are_subsampled():
    figure = overlay(torch.rand(1, 2500, 40), torch.ones(2500, 40, dtype=torch.uint8), classes=CLASSES)
    assert figure.axes[0].images[0].get_array().shape == (834, 14)
