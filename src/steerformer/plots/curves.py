"""Curves: learning curves and accuracy against angle."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from steerformer.plots.style import PALETTE, add_legend, new_figure

ANGLE_LABEL = "rotation angle [degrees]"


def accuracy_curves(curves: Mapping[str, Sequence[float]], angles: Sequence[float | int]) -> Figure:
    """Accuracy against rotation angle, a line for each name."""
    figure, axes = new_figure(7.2, 3.6)
    for (name, values), color in zip(curves.items(), PALETTE, strict=False):
        axes.plot(angles, [100 * value for value in values], color=color, label=name, linewidth=1.8)
    axes.set(xlabel=ANGLE_LABEL, ylabel="accuracy [%]", ylim=(0, 101))
    axes.set_xticks(np.arange(min(angles), max(angles) + 1, 45))
    add_legend(axes)
    return figure


def learning_curves(curves: Mapping[str, Sequence[float | None]], *, label: str = "validation accuracy [%]") -> Figure:
    """Accuracy after each epoch, a line for each name; epochs without validation are skipped."""
    figure, axes = new_figure(7.2, 3.4)
    for (name, values), color in zip(curves.items(), PALETTE, strict=False):
        known = {epoch: 100 * value for epoch, value in enumerate(values, start=1) if value is not None}
        axes.plot(list(known), list(known.values()), ".-", color=color, label=name, linewidth=1.6)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(axes)
    return figure
