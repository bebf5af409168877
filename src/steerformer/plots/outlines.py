"""Images and slices with the outlines of their labels."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from torch import Tensor

from steerformer.plots.intensity import to_gray

COLORS = ("#ff9f1c", "#2ec4b6", "#e71d36", "#8ac926", "#c77dff", "#ffd60a", "#4cc9f0", "#ff70a6")
"""Colors of the labels from 1 on, repeated if there are more."""


def label_color(label: int) -> str:
    """The color of a label."""
    return COLORS[(label - 1) % len(COLORS)]


def draw_outlines(axes: Axes, labels: Tensor, *, color: str | None = None, style: str = "solid") -> None:
    """Outlines of the labels (height, width), each in its color or all in ``color``; 0 and below have none."""
    places = [torch.arange(-1, n + 1) for n in labels.shape]
    limits = axes.get_xlim(), axes.get_ylim()
    for label in labels[labels > 0].unique().tolist():
        inside = F.pad((labels == label).float(), (1, 1, 1, 1))  # labels at the border have an outline there
        colors = [color or label_color(label)]
        outline = axes.contour(
            places[1], places[0], inside, levels=[0.5], colors=colors, linewidths=1.2, linestyles=style
        )
        outline.set_path_effects([withStroke(linewidth=2.2, foreground="#00000090")])  # visible on any background
    axes.set(xlim=limits[0], ylim=limits[1])


def draw_image(axes: Axes, x: Tensor, *, origin: Literal["upper", "lower"] = "upper") -> None:
    """An image (channels, height, width): in color if it has at least three channels, else its first in gray."""
    gray = to_gray(x[:3] if x.shape[0] >= 3 else x[:1], from_zero=True)
    axes.imshow(gray.movedim(0, -1).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1, origin=origin)


def draw_slice(axes: Axes, x: Tensor, labels: Tensor, spacing: Sequence[float] = (1.0, 1.0)) -> None:
    """An axial slice (channels, right, anterior) of a RAS+ volume with outlines, anterior at the top."""
    draw_image(axes, x.mT, origin="lower")
    draw_outlines(axes, labels.T)
    axes.set_aspect(spacing[1] / spacing[0])


def fullest_slice(labels: Tensor) -> int:
    """Index of the slice along the last axis with most foreground voxels; the central one if there are none."""
    found = (labels > 0).sum(dim=tuple(range(labels.ndim - 1)))
    return int(found.argmax()) if found.any() else labels.shape[-1] // 2


def add_label_legend(figure: Figure, labels: Sequence[int], classes: Sequence[str]) -> None:
    """A legend of the labels below the figure."""
    handles = [Patch(color=label_color(label), label=classes[label]) for label in labels]
    figure.legend(
        handles=handles,
        title=None if handles else "nothing found",
        loc="outside lower center",
        ncols=max(1, min(6, len(labels))),
        frameon=False,
        fontsize=9,
    )
