"""Scores against the number of training samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from steerformer.plots.style import PALETTE


@dataclass(frozen=True)
class EfficiencyCurve:
    """Scores of one network, from 0 to 1, by number of training samples."""

    name: str
    samples: Sequence[int]
    scores: Sequence[float]
    errors: Sequence[float]


def efficiency_figure(curves: Mapping[str, Mapping[str, Sequence[EfficiencyCurve]]]) -> Figure:
    """A row of panels for each data set, a panel for each test, and a line with error bars for each network."""
    figure = Figure(figsize=(9.0, 3.5 * len(curves)), layout="constrained")
    rows = figure.subplots(len(curves), max(len(tests) for tests in curves.values()), squeeze=False, sharey="row")
    for axes_of_row, (title, tests) in zip(rows, curves.items(), strict=True):
        for axes, (test, lines) in zip(axes_of_row, tests.items(), strict=True):
            for line, color in zip(lines, PALETTE, strict=False):
                scores, errors = ([100 * value for value in values] for values in (line.scores, line.errors))
                axes.errorbar(line.samples, scores, errors, fmt="o-", color=color, label=line.name, capsize=3)
            axes.set(xscale="log", title=f"{title}, {test}", xlabel="training samples")
            ticks = sorted({count for line in lines for count in line.samples})
            axes.set_xticks(ticks, [f"{count:,}" for count in ticks], minor=False)
            axes.set_xticks([], minor=True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
        axes_of_row[0].set_ylabel("score [%]")
        axes_of_row[-1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure
