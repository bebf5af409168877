"""Example cases side by side: true outlines above, predicted ones below."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.infer.evaluation import ExampleCase
from steerformer.plots.outlines import add_label_legend
from steerformer.plots.overlay import View, draw_view, views

_HEIGHT = 2.6  # of a panel, in inches
_BLANK = 0.93  # gray value where scans are left out


def case_examples(examples: Sequence[ExampleCase], *, classes: Sequence[str], scans: bool = True) -> Figure:
    """A column for each case: true outlines above, predicted ones below; of volumes the axial slice.

    The slice is the central one of the true labels. Without ``scans`` only outlines are drawn, for confidential scans.
    """
    columns = [[_view(case, labels) for labels in (_truth(case), case.predicted)] for case in examples]
    if not scans:
        columns = [[view._replace(shown=np.full_like(view.shown, _BLANK)) for view in pair] for pair in columns]
    shapes = [(view.shown.shape[0] * view.steps[0], view.shown.shape[1] * view.steps[1]) for view, _ in columns]
    widths = [width / height for height, width in shapes]
    figure = Figure(figsize=(_HEIGHT * sum(widths) + 0.4, 2 * _HEIGHT + 1.0), layout="constrained")
    grid = figure.subplots(2, len(examples), squeeze=False, width_ratios=widths)
    for column, (case, pair) in enumerate(zip(examples, columns, strict=True)):
        for axes, view, word in zip(grid[:, column], pair, (f"{case.title}\ntruth", "prediction"), strict=True):
            draw_view(axes, view._replace(title=word))
    labels = {int(label) for case in examples for part in (_truth(case), case.predicted) for label in part.unique()}
    add_label_legend(figure, sorted(label for label in labels if label > 0), classes)
    return figure


def _truth(case: ExampleCase) -> Tensor:
    assert case.scan.labels is not None
    return case.scan.labels


def _view(case: ExampleCase, labels: Tensor) -> View:
    return list(views(case.scan.x, labels, case.scan.spacing, center_on=_truth(case)))[-1]
