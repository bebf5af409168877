"""The confusion matrix."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure


def confusion_figure(matrix: Sequence[Sequence[int]], classes: Sequence[str]) -> Figure:
    """Confusion matrix with counts, each row colored by its shares."""
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
