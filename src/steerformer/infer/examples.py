"""Good and bad cases side by side: what is there, and what the network says."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.infer.overlay import View, add_legend, draw, views

_HEIGHT = 2.6  # of a picture, in inches
_PAPER = 0.93  # how bright it is where scans are left out


class Example(NamedTuple):
    """A case with its true and its predicted labels."""

    title: str
    x: Float[Tensor, "channels *space"]
    truth: Integer[Tensor, "*space"]
    predicted: Integer[Tensor, "*space"]
    spacing: tuple[float, ...]


def examples_picture(chosen: Sequence[Example], *, classes: Sequence[str], scans: bool = True) -> Figure:
    """A column for each case: true outlines above, predicted ones below; of volumes the slice from above.

    The slice is that in the middle of the true labels. Without ``scans`` only outlines are drawn: not all scans may be
    shown to others.
    """
    columns = [[_view(case, labels) for labels in (case.truth, case.predicted)] for case in chosen]
    if not scans:
        columns = [[view._replace(shown=np.full_like(view.shown, _PAPER)) for view in pair] for pair in columns]
    shapes = [(view.shown.shape[0] * view.steps[0], view.shown.shape[1] * view.steps[1]) for view, _ in columns]
    widths = [width / height for height, width in shapes]
    size = (_HEIGHT * sum(widths) + 0.4, 2 * _HEIGHT + 1.0)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(2, len(chosen), squeeze=False, width_ratios=widths)
    for column, (case, pair) in enumerate(zip(chosen, columns, strict=True)):
        for axes, view, word in zip(grid[:, column], pair, (f"{case.title}\ntruth", "prediction"), strict=True):
            draw(axes, view._replace(title=word))
    labels = {int(label) for case in chosen for part in (case.truth, case.predicted) for label in part.unique()}
    add_legend(figure, sorted(label for label in labels if label > 0), classes)
    return figure


def best_median_worst(scores: Sequence[float | None]) -> dict[str, int]:
    """Numbers of three cases; of fewer that have a score, those there are.

    >>> best_median_worst([0.5, None, 0.9, 0.1])
    {'best': 2, 'median': 0, 'worst': 3}
    """
    ranked = sorted(((score, number) for number, score in enumerate(scores) if score is not None), reverse=True)
    places = {"best": 0, "median": len(ranked) // 2, "worst": len(ranked) - 1}
    if len(ranked) == 2:
        del places["median"]
    names = {place: name for name, place in reversed(places.items())}  # one case alone is the best
    return {names[place]: ranked[place][1] for place in sorted(names) if ranked}


def _view(case: Example, labels: Tensor) -> View:
    return list(views(case.x, labels, case.spacing, middle=case.truth))[-1]
