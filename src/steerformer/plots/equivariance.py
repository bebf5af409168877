"""Figures of equivariance checks: accuracy or Dice against angle, errors of layers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from steerformer.audit import ClassifierCheck, DiceSweep, SegmentationCheck
from steerformer.plots.curves import ANGLE_LABEL
from steerformer.plots.style import PALETTE, add_legend, new_figure


def check_figure(found: ClassifierCheck | SegmentationCheck) -> Figure:
    """Accuracy or Dice against angle, and errors of all layers under rotations of the grid and random ones."""
    segments = isinstance(found, SegmentationCheck)
    figure = Figure(figsize=(13 if segments else 9, 3.6), layout="constrained")
    *left, right = figure.subplots(1, 3 if segments else 2)
    if isinstance(found, SegmentationCheck):
        sweeps = {"this model": found.sweep, **({"control": found.control} if found.control else {})}
        _dice_panels(left, sweeps)
        for axes in left:
            axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    else:
        _accuracy_panel(left[0], found)
    _layers_panel(right, found)
    for axes in (*left, right):
        axes.grid(alpha=0.25)
    return figure


def _accuracy_panel(axes: Axes, found: ClassifierCheck) -> None:
    for (name, values), color in zip(found.accuracy.items(), PALETTE, strict=False):
        axes.plot(found.angles, [100 * value for value in values], ".-", color=color, label=name)
    axes.set(xlabel=ANGLE_LABEL, ylabel="accuracy [%]", ylim=(0, 101))
    if len(found.accuracy) > 1:
        axes.legend(title="rotation axis", frameon=False, fontsize=8)


def dice_sweep_figure(sweeps: Mapping[str, DiceSweep]) -> Figure:
    """Dice against rotation angle of one or several runs, with the upright prediction and with the true labels."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = list(figure.subplots(1, 2, sharey=True))
    _dice_panels(panels, sweeps)
    for axes in panels:
        axes.grid(alpha=0.25)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, frameon=False, fontsize=9, ncols=3, loc="outside upper center")
    return figure


def _dice_panels(panels: Sequence[Axes], sweeps: Mapping[str, DiceSweep]) -> None:
    """The mean over axes, and each axis as a thin line; agreement with the upright prediction left, Dice right."""
    for axes, key, label in zip(panels, ("agreement", "dice"), ("upright prediction", "true labels"), strict=True):
        for (name, sweep), color in zip(sweeps.items(), PALETTE, strict=False):
            lines = _lines(sweep, key)
            axes.plot(sweep.angles, lines.mean(0), ".-", color=color, label=name)
            if len(lines) > 1:
                axes.plot(sweep.angles, lines.T, color=color, linewidth=0.6, alpha=0.5)
        first = next(iter(sweeps.values()))
        if key == "agreement":
            ceiling = _lines(first, "ceiling").mean(0)
            axes.plot(first.angles, ceiling, "--", color="#888888", label="interpolation only")
        axes.set(xlabel=ANGLE_LABEL, ylabel=f"Dice with the {label}", ylim=(0, 1.01))
        axes.set_xticks(np.arange(min(first.angles), max(first.angles) + 1, 45))


def _lines(sweep: DiceSweep, key: str) -> np.ndarray:
    """Scores ``(axis, angle)``."""
    return np.array([[getattr(scores, key) for scores in row] for row in sweep.axes.values()])


def _layers_panel(axes: Axes, found: ClassifierCheck | SegmentationCheck) -> None:
    names = [error.name for error in found.layers_grid]
    for label, errors, color in (
        ("rotations of the grid, samples", found.layers_grid, PALETTE[0]),
        ("random rotations, smooth scenes", found.layers_arbitrary, PALETTE[1]),
    ):
        places = [names.index(error.name) for error in errors]
        axes.semilogy(places, [max(error.total, 1e-9) for error in errors], ".-", color=color, label=label)
    axes.set(xlabel="layer, from input to logits", ylabel="relative equivariance error", xticks=[], ylim=(1e-8, 4))
    axes.legend(frameon=False, fontsize=8)


def errors_by_layer(errors: Mapping[str, Sequence[float]]) -> Figure:
    """Relative errors from the first layer of each model to its logits."""
    figure, axes = new_figure(7.2, 3.4)
    for (name, values), color in zip(errors.items(), PALETTE, strict=False):
        places = np.linspace(0, 1, len(values)) if len(values) > 1 else np.ones(1)
        axes.semilogy(places, np.maximum(values, 1e-9), ".-", color=color, label=name, linewidth=1.4)
    axes.set(ylabel="relative equivariance error")
    axes.set_xticks([0, 1], ["first layer", "logits"])
    add_legend(axes)
    return figure
