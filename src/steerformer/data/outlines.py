"""Cases with the outlines of their labels."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.data.base import Numbered, Splits, generator

COLORS = ("#ff9f1c", "#2ec4b6", "#e71d36", "#8ac926", "#c77dff", "#ffd60a", "#4cc9f0", "#ff70a6")
"""Of the labels from 1 on, again from the first when there are more."""
_MOST_VALUES = 1_000_000


def outlined(splits: Splits, columns: int) -> Any:
    """A row for each set, with the first cases of it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = {"to train on": splits.train, "to validate on": splits.validation, "to test on": splits.test}
    rows = {title: cases for title, cases in rows.items() if len(cases)}
    columns = min(columns, max(len(cases) for cases in rows.values()))
    figure = Figure(figsize=(max(1.9 * columns, 4), 1.95 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, (title, cases) in zip(axes, rows.items(), strict=True):
        row[0].set_title(title, fontsize=9, loc="left")
        _draw_row(row, cases)
    named = enumerate(splits.classes[1 : len(COLORS) + 1])
    handles = [Line2D([], [], color=COLORS[number], label=name) for number, name in named]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4), fontsize=9, frameon=False)
    return figure


def _draw_row(axes: Any, cases: Numbered) -> None:
    for axis in axes:
        axis.set_axis_off()
    for index, axis in zip(range(len(cases)), axes, strict=False):
        x, labels = cases[index]
        spacing = cases.spacing(index)  # type: ignore[attr-defined]
        if labels.ndim == 3:
            level = fullest_slice(labels)
            draw_slice(axis, x[:1, ..., level], labels[..., level], spacing[:2])
        else:
            show(axis, x)
            draw_outlines(axis, labels)


def draw_slice(axis: Any, x: Tensor, labels: Tensor, spacing: Sequence[float] = (1.0, 1.0)) -> None:
    """A slice (channels, right, front) of a volume and its labels, seen from above, the front at the top."""
    show(axis, x.mT, origin="lower")
    draw_outlines(axis, labels.T)
    axis.set_aspect(spacing[1] / spacing[0])


def draw_outlines(axis: Any, labels: Tensor) -> None:
    """Outlines of the labels (height, width), in the colors of :data:`COLORS`; 0 and below have none."""
    from matplotlib.patheffects import withStroke

    places = [torch.arange(-1, n + 1) for n in labels.shape]
    limits = axis.get_xlim(), axis.get_ylim()
    for label in labels[labels > 0].unique().tolist():
        inside = F.pad((labels == label).float(), (1, 1, 1, 1))  # what lies at the border has an outline there
        outline = axis.contour(places[1], places[0], inside, levels=[0.5], colors=[color_of(label)], linewidths=1.2)
        outline.set_path_effects([withStroke(linewidth=2.2, foreground="#00000090")])  # seen on any ground
    axis.set(xlim=limits[0], ylim=limits[1])


def color_of(label: int) -> str:
    """One of :data:`COLORS`."""
    return COLORS[(label - 1) % len(COLORS)]


def show(axis: Any, x: Tensor, *, origin: str = "upper") -> None:
    """An image (channels, height, width): in color if it has at least three channels, else its first in gray."""
    x = x[:3] if x.shape[0] >= 3 else x[:1]
    low, high = value_range(x)
    shown = ((x - low) / (high - low)).clamp(0, 1).movedim(0, -1).squeeze(-1)
    axis.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1, origin=origin)


def value_range(x: Tensor) -> tuple[float, float]:
    """What is shown black and white: a few bright voxels count less."""
    values = x.flatten()
    if len(values) > _MOST_VALUES:  # torch's quantile takes no more than 16 million
        values = values[torch.randint(len(values), (_MOST_VALUES,), generator=generator(0))]
    return min(float(values.quantile(0.005)), 0.0), max(float(values.quantile(0.995)), 1e-9)


def fullest_slice(labels: Tensor) -> int:
    """Which slice along the last axis has most voxels that are not background; the middle one if none has any."""
    found = (labels > 0).sum(dim=tuple(range(labels.ndim - 1)))
    return int(found.argmax()) if found.any() else labels.shape[-1] // 2
