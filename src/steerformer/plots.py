"""Pictures of runs: learning curves, accuracy against angle, errors of layers, confusion, samples, attention."""

import io
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from steerformer.files import write_whole

if TYPE_CHECKING:
    from steerformer.audit import Check, SegmentationCheck

PALETTE = ("#2f6fb0", "#c2571a", "#2e8b57", "#8e5aa8", "#a58a1f", "#b0413e")
_INK = "#123456"  # stands for the color of the page's text, until as_svg puts that in


def as_svg(figure: Figure, *, name: str) -> str:
    """The figure as an ``<svg>`` element that takes its text color and font from the page around it."""
    text = io.StringIO()
    # text stays text, and ids differ from figure to figure
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    return svg.replace(_INK, "currentColor")


def as_image(figure: Figure, *, alt: str, dpi: int = 110) -> str:
    """The figure as an ``<img>`` element that holds its own pixels."""
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=dpi, transparent=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{b64encode(pixels.getvalue()).decode()}">'


def save(figure: Figure, path: Path, *, dpi: int = 110) -> None:
    """The figure as a PNG file on white."""
    pixels = io.BytesIO()
    figure.savefig(pixels, dpi=dpi, format="png", facecolor="white")
    write_whole(path, pixels.getvalue())


def accuracy_by_angle(curves: Mapping[str, Sequence[float]], angles: Sequence[float | int]) -> Figure:
    """A line for each name."""
    figure, axes = _figure(7.2, 3.6)
    for (name, values), color in zip(curves.items(), PALETTE, strict=False):
        axes.plot(angles, [100 * value for value in values], color=color, label=name, linewidth=1.8)
    axes.set(xlabel="angle by which samples are turned, degrees", ylabel="accuracy, %", ylim=(0, 101))
    axes.set_xticks(np.arange(min(angles), max(angles) + 1, 45))
    _legend(axes)
    return figure


def check(found: "Check | SegmentationCheck") -> Figure:
    """Accuracy or Dice against angle, and errors of all layers at turns of the grid and at others."""
    from steerformer.audit import SegmentationCheck

    segments = isinstance(found, SegmentationCheck)
    figure = Figure(figsize=(13 if segments else 9, 3.6), layout="constrained")
    *left, right = figure.subplots(1, 3 if segments else 2)
    if isinstance(found, SegmentationCheck):
        for panel, key, label in zip(left, ("agreement", "dice"), ("upright prediction", "true labels"), strict=True):
            _dice_panel(panel, found, key)
            panel.set(ylabel=f"Dice with the {label}")
    else:
        _accuracy_panel(left[0], found)
    _layers_panel(right, found)
    for axes in (*left, right):
        axes.grid(alpha=0.25)
    return figure


def _accuracy_panel(axes: Axes, found: "Check") -> None:
    for (name, values), color in zip(found.accuracy.items(), PALETTE, strict=False):
        axes.plot(found.angles, [100 * value for value in values], ".-", color=color, label=name)
    axes.set(xlabel="angle by which samples are turned, degrees", ylabel="accuracy, %", ylim=(0, 101))
    if len(found.accuracy) > 1:
        axes.legend(title="turned about", frameon=False, fontsize=8)


def _dice_panel(axes: Axes, found: "SegmentationCheck", key: str) -> None:
    """The mean over axes, and each axis as a thin line."""
    curves = [("this model", found.sweep, key, PALETTE[0])]
    if found.control:
        curves.append(("control", found.control, key, PALETTE[1]))
    if key == "agreement":
        curves.append(("turning alone", found.sweep, "ceiling", "#888888"))
    for name, sweep, kind, color in curves:
        lines = np.array([[getattr(scores, kind) for scores in about] for about in sweep.axes.values()])
        axes.plot(sweep.angles, lines.mean(0), ".-" if kind == key else "--", color=color, label=name)
        if len(lines) > 1 and kind == key:
            axes.plot(sweep.angles, lines.T, color=color, linewidth=0.6, alpha=0.5)
    axes.set(xlabel="angle by which cases are turned, degrees", ylim=(0, 1.01))
    axes.set_xticks(np.arange(min(found.sweep.angles), max(found.sweep.angles) + 1, 45))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))


def _layers_panel(axes: Axes, found: "Check | SegmentationCheck") -> None:
    names = [error.name for error in found.layers_grid]
    for label, errors, color in (
        ("turns of the grid, samples", found.layers_grid, PALETTE[0]),
        ("any rotation, smooth scenes", found.layers_arbitrary, PALETTE[1]),
    ):
        places = [names.index(error.name) for error in errors]
        axes.semilogy(places, [max(error.total, 1e-9) for error in errors], ".-", color=color, label=label)
    axes.set(xlabel="layers, from the input to the logits", ylabel="relative error", xticks=[], ylim=(1e-8, 4))
    axes.legend(frameon=False, fontsize=8)


def learning_curves(curves: Mapping[str, Sequence[float | None]], *, label: str = "validation accuracy, %") -> Figure:
    """Accuracy after each epoch, a line for each name; epochs that were not judged have none."""
    figure, axes = _figure(7.2, 3.4)
    for (name, values), color in zip(curves.items(), PALETTE, strict=False):
        known = {epoch: 100 * value for epoch, value in enumerate(values, start=1) if value is not None}
        axes.plot(list(known), list(known.values()), ".-", color=color, label=name, linewidth=1.6)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)
    return figure


def errors_by_layer(errors: Mapping[str, Sequence[float]]) -> Figure:
    """Relative errors from the first layer of each model to its logits, which stand at the right end."""
    figure, axes = _figure(7.2, 3.4)
    for (name, values), color in zip(errors.items(), PALETTE, strict=False):
        places = np.linspace(0, 1, len(values)) if len(values) > 1 else np.ones(1)
        axes.semilogy(places, np.maximum(values, 1e-9), ".-", color=color, label=name, linewidth=1.4)
    axes.set(ylabel="relative error")
    axes.set_xticks([0, 1], ["first layer", "logits"])
    _legend(axes)
    return figure


def confusion(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> Figure:
    """Counts of (true class, predicted class), each row colored by its shares."""
    counts = np.asarray(matrix)
    side = 1.6 + 0.42 * len(classes)
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in np.argwhere(counts > 0):
        tone = "white" if shares[row, column] > 0.5 else "#222222"
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=tone)
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_xticks(range(len(classes)), classes, rotation=90 if max(map(len, classes)) > 2 else 0, fontsize=8)
    axes.set_yticks(range(len(classes)), classes, fontsize=8)
    return figure


def pictures(images: Sequence[np.ndarray], titles: Sequence[str], *, columns: int) -> Figure:
    """Gray images in rows, each with a line above it."""
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(0.85 * columns, 1.02 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    for axes, image, title in zip(grid, images, titles, strict=False):
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.set_title(title, fontsize=8, color="#888888")
    return figure


def attention(images: Sequence[np.ndarray], maps: Sequence[np.ndarray], titles: Sequence[str]) -> Figure:
    """Images above, and below each of them the same with its attention map laid over it."""
    figure = Figure(figsize=(1.25 * len(images), 2.75), layout="constrained")
    grid = figure.subplots(2, len(images), squeeze=False)
    limits = min(m.min() for m in maps), max(m.max() for m in maps)
    for column, (image, weights, title) in enumerate(zip(images, maps, titles, strict=True)):
        height, width = image.shape
        for axes in grid[:, column]:
            axes.imshow(image, cmap="gray", vmin=0, vmax=1, extent=(0, width, height, 0))
            axes.axis("off")
        over = grid[1, column]
        whole = (0, width, height, 0)
        over.imshow(weights, cmap="inferno", vmin=limits[0], vmax=limits[1], extent=whole, interpolation="bicubic")
        over.contour(image, levels=[0.5], colors="white", linewidths=0.9, extent=(0, width, 0, height))
        over.set(xlim=(0, width), ylim=(height, 0))
        grid[0, column].set_title(title, fontsize=9, color="#888888")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.tick_params(colors=_INK)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
    return figure, axes


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
