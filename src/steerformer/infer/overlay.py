"""A picture of what was found: outlines of the labels over the image, or over slices of a volume."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from steerformer import plots
from steerformer.data.outlines import color_of, draw_outlines

_AXES = ("sagittal", "coronal", "axial")  # of right, front, up, the axes that volumes are read in
_MOST_PIXELS = 1200  # along a side: more would not be seen
_MOST_VALUES = 1_000_000


def write_overlay(
    x: Float[Tensor, "channels *space"],
    labels: Integer[Tensor, "*space"],
    path: Path,
    *,
    classes: Sequence[str],
    spacing: Sequence[float] | None = None,
) -> None:
    """Write the picture of :func:`overlay` as PNG."""
    plots.save(overlay(x, labels, classes=classes, spacing=spacing), path)


def overlay(
    x: Float[Tensor, "channels *space"],
    labels: Integer[Tensor, "*space"],
    *,
    classes: Sequence[str],
    spacing: Sequence[float] | None = None,
) -> Figure:
    """The image, or three slices through the middle of what was found in a volume, with an outline of each class.

    Args:
        x: image in rows and columns, or volume whose axes run right, front and up; of three channels of an image,
            colors are made, of others the first is shown.
        labels: classes; 0, the background, has no outline.
        classes: names, the background's first.
        spacing: size of a voxel along each axis.
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
        draw(axes, view)
    add_legend(figure, [int(label) for label in labels.unique() if label], classes)
    return figure


def add_legend(figure: Figure, found: Sequence[int], classes: Sequence[str]) -> None:
    """The colors of the labels that were found, below all."""
    handles = [Patch(color=color_of(label), label=classes[label]) for label in found]
    text = None if handles else "nothing found"
    figure.legend(handles=handles, title=text, loc="outside lower center", ncols=max(1, min(6, len(found))),
                  frameon=False, fontsize=9)  # fmt: skip


class View(NamedTuple):
    """One picture: pixels in rows and columns, labels on them, their height and width, and which way is up."""

    shown: np.ndarray
    labels: np.ndarray
    steps: tuple[float, float]
    title: str
    origin: Literal["upper", "lower"]


def views(x: Tensor, labels: Tensor, steps: tuple[float, ...], *, middle: Tensor | None = None) -> Iterator[View]:
    """The image, or three slices of a volume through the middle of its labels, or of those of ``middle``."""
    x = x if len(x) == 3 and x.ndim == 3 else x[:1]
    in_range = _scale(x)
    if labels.ndim == 2:
        gray = in_range(x)
        colors = gray.movedim(0, -1) if len(gray) == 3 else gray[0]
        yield View(colors.numpy(), labels.numpy(), (steps[0], steps[1]), "", "upper")
        return
    for axis, name in enumerate(_AXES):
        place = _middle(labels if middle is None else middle, axis)
        across, up = (other for other in range(3) if other != axis)
        shown, found = in_range(x[0].select(axis, place)).mT, labels.select(axis, place).mT
        title = f"{name}, {place + 1} of {labels.shape[axis]}"
        yield View(shown.numpy(), found.numpy(), (steps[up], steps[across]), title, "lower")


def _scale(x: Tensor) -> Callable[[Tensor], Tensor]:
    """What brings a part of ``x`` to values from 0 to 1; a few very dark or very bright ones count less."""
    values = x.flatten()
    values = values[:: max(1, len(values) // _MOST_VALUES)]
    low, high = float(values.quantile(0.005)), float(values.quantile(0.995))
    return lambda part: ((part - low) / max(high - low, 1e-9)).clamp(0, 1)


def _middle(labels: Tensor, axis: int) -> int:
    """The slice in the middle of what was found; if nothing was, that in the middle of the volume."""
    found = (labels > 0).sum(dim=[other for other in range(3) if other != axis]).cumsum(0)
    half = int(found[-1]) / 2
    return int((found > half).nonzero()[0]) if half else labels.shape[axis] // 2


def draw(axes: Axes, view: View) -> None:
    """The picture with an outline of each label."""
    skip = math.ceil(max(view.labels.shape) / _MOST_PIXELS)
    shown, labels = view.shown[::skip, ::skip], view.labels[::skip, ::skip]
    aspect = view.steps[0] / view.steps[1]
    axes.imshow(shown, cmap="gray", vmin=0, vmax=1, origin=view.origin, aspect=aspect, interpolation="nearest")
    draw_outlines(axes, torch.from_numpy(np.ascontiguousarray(labels)))
    axes.set_title(view.title, fontsize=9)
    axes.axis("off")
