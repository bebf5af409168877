"""Overlays: outlines of the labels over the image, or over three slices of a volume."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.io.scans import Scan
from steerformer.plots.intensity import to_gray
from steerformer.plots.outlines import add_label_legend, draw_outlines
from steerformer.plots.style import save_figure

_AXES = ("sagittal", "coronal", "axial")  # planes orthogonal to the axes of RAS+
_MOST_PIXELS = 1200  # along a side: more would not be visible


def overlay(
    x: Float[Tensor, "channels *space"],
    labels: Integer[Tensor, "*space"],
    *,
    classes: Sequence[str],
    spacing: Sequence[float] | None = None,
) -> Figure:
    """The image, or three slices through the center of the labels of a volume, with an outline of each class.

    Args:
        x: image in rows and columns, or volume in RAS+ orientation; an image with three channels is drawn in color,
            of others the first channel.
        labels: classes; 0, the background, has no outline.
        classes: names, background first.
        spacing: voxel spacing along each axis.
    """
    steps = tuple(spacing or (1.0,) * labels.ndim)
    shown = list(views(x, labels, steps))
    widths = [view.shown.shape[1] * view.steps[1] for view in shown]
    heights = [view.shown.shape[0] * view.steps[0] for view in shown]
    height = 3.6 if len(shown) > 1 else 5.0
    width = sum(height * w / max(heights) for w in widths)
    scale = min(1.0, 12 / width)
    figure = Figure(figsize=(scale * width + 0.2, scale * height + 0.7), layout="constrained")
    grid = figure.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
    for axes, view in zip(grid, shown, strict=True):
        draw_view(axes, view)
    add_label_legend(figure, [int(label) for label in labels.unique() if label], classes)
    return figure


def write_overlay(scan: Scan, labels: Integer[Tensor, "*space"], path: Path, *, classes: Sequence[str]) -> None:
    """Write the overlay of a scan and labels on its grid as a PNG file."""
    save_figure(overlay(scan.x, labels, classes=classes, spacing=scan.spacing), path)


class View(NamedTuple):
    """One panel: pixels in rows and columns, labels on them, height and width of a pixel, and the origin."""

    shown: np.ndarray
    labels: np.ndarray
    steps: tuple[float, float]
    title: str
    origin: Literal["upper", "lower"]


def views(x: Tensor, labels: Tensor, steps: tuple[float, ...], *, center_on: Tensor | None = None) -> Iterator[View]:
    """The image, or three slices of a volume through the center of its labels, or of ``center_on``."""
    x = x if len(x) == 3 and x.ndim == 3 else x[:1]
    if labels.ndim == 2:
        gray = to_gray(x)
        pixels = gray.movedim(0, -1) if len(gray) == 3 else gray[0]
        yield View(pixels.numpy(), labels.numpy(), (steps[0], steps[1]), "", "upper")
        return
    for axis, name in enumerate(_AXES):
        place = _central_slice(labels if center_on is None else center_on, axis)
        across, up = (other for other in range(3) if other != axis)
        shown, found = to_gray(x[0].select(axis, place), of=x).mT, labels.select(axis, place).mT
        title = f"{name}, {place + 1} of {labels.shape[axis]}"
        yield View(shown.numpy(), found.numpy(), (steps[up], steps[across]), title, "lower")


def draw_view(axes: Axes, view: View) -> None:
    """Draw a panel with an outline of each label."""
    skip = math.ceil(max(view.labels.shape) / _MOST_PIXELS)
    shown, labels = view.shown[::skip, ::skip], view.labels[::skip, ::skip]
    aspect = view.steps[0] / view.steps[1]
    axes.imshow(shown, cmap="gray", vmin=0, vmax=1, origin=view.origin, aspect=aspect, interpolation="nearest")
    draw_outlines(axes, torch.from_numpy(np.ascontiguousarray(labels)))
    axes.set_title(view.title, fontsize=9)
    axes.axis("off")


def _central_slice(labels: Tensor, axis: int) -> int:
    """Median slice of the foreground voxels; the central slice of the volume if there are none."""
    found = (labels > 0).sum(dim=[other for other in range(3) if other != axis]).cumsum(0)
    half = int(found[-1]) / 2
    return int((found > half).nonzero()[0]) if half else labels.shape[axis] // 2
