"""Samples of a data set: some of each class, or some cases of each split with the outlines of their labels."""

from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.data import ClassificationDataset, SeededDataset, SegmentationDataset, Splits
from steerformer.io.atomic import write_atomic
from steerformer.plots.outlines import (
    COLORS,
    add_label_legend,
    draw_image,
    draw_outlines,
    draw_slice,
    fullest_slice,
)

_MOST_CLASSES = 12
_SIGNATURE = "steerformer data"


def write_data_samples(splits: Splits, path: Path, *, columns: int = 6) -> None:
    """Write a PNG with a row for each class, or for segmentation data a row for each split."""
    is_segmentation = isinstance(splits.train, SegmentationDataset)
    figure = _cases_by_split(splits, columns) if is_segmentation else _samples_by_class(splits, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = BytesIO()
    figure.savefig(written, dpi=110, format="png", metadata={"Software": _SIGNATURE})
    write_atomic(path, written.getvalue())


def is_data_samples(path: Path) -> bool:
    """Whether :func:`write_data_samples` wrote the file, which then may be overwritten."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.info.get("Software") == _SIGNATURE
    except (OSError, SyntaxError, ValueError):
        return False


def _samples_by_class(splits: Splits, columns: int) -> Figure:
    """A row for each class: training samples left, test samples right."""
    assert isinstance(splits.train, ClassificationDataset) and isinstance(splits.test, ClassificationDataset)
    classes = splits.classes[:_MOST_CLASSES]
    x, _ = splits.train[0]
    volume = x.ndim == 4 and _is_surface(x)
    figure = Figure(figsize=(1.35 * columns + 0.9, 1.35 * len(classes) + 0.4), layout="constrained")
    axes = figure.subplots(len(classes), columns, squeeze=False, subplot_kw={"projection": "3d"} if volume else {})
    halves = ((splits.train, range(columns // 2)), (splits.test, range(columns // 2, columns)))
    for row, name in enumerate(classes):
        for samples, places in halves:
            for column, index in zip(places, _first(samples, row, len(places)), strict=False):
                _draw_sample(axes[row][column], samples[index][0])
        for axis in axes[row]:
            axis.set_axis_off()
        label = axes[row][0].text2D if volume else axes[row][0].text
        label(-0.08, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=9, rotation=90)
    for column, title in ((0, "training"), (columns // 2, "test")):
        axes[0][column].set_title(title, fontsize=9, loc="left")
    return figure


def _cases_by_split(splits: Splits, columns: int) -> Figure:
    """A row for each split, with its first cases."""
    rows = {"training": splits.train, "validation": splits.validation, "test": splits.test}
    rows = {title: cases for title, cases in rows.items() if len(cases)}
    columns = min(columns, max(len(cases) for cases in rows.values()))
    figure = Figure(figsize=(max(1.9 * columns, 4), 1.95 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, (title, cases) in zip(axes, rows.items(), strict=True):
        row[0].set_title(title, fontsize=9, loc="left")
        _draw_cases(row, cases)
    add_label_legend(figure, range(1, min(len(splits.classes), len(COLORS) + 1)), splits.classes)
    return figure


def _draw_cases(axes: Any, cases: SeededDataset) -> None:
    for axis in axes:
        axis.set_axis_off()
    assert isinstance(cases, SegmentationDataset)
    for index, axis in zip(range(len(cases)), axes, strict=False):
        x, labels = cases[index]
        if labels.ndim == 3:
            level = fullest_slice(labels)
            draw_slice(axis, x[:1, ..., level], labels[..., level], cases.spacing(index)[:2])
        else:
            draw_image(axis, x)
            draw_outlines(axis, labels)


def _first(samples: ClassificationDataset, label: int, count: int) -> list[int]:
    return (samples.labels == label).nonzero().flatten()[:count].tolist()


def _is_surface(x: Tensor) -> bool:
    """Whether a volume is a surface in empty space, best seen from outside."""
    return float(x.min()) == 0 and float(x.max()) <= 1 and float((x == 0).float().mean()) > 0.5


def _draw_sample(axis: Any, x: Tensor) -> None:
    if axis.name == "3d":
        _draw_surface(axis, x)
    elif x.ndim == 4:
        draw_image(axis, x[..., x.shape[-1] // 2].mT, origin="lower")  # the central axial slice
    else:
        draw_image(axis, x)


def _draw_surface(axis: Any, x: Tensor) -> None:
    places = (x[0] > x.max() / 2).nonzero().float()
    depth = places @ torch.tensor([0.5, -0.7, 0.5])
    axis.scatter(*places.T.numpy(), c=depth.numpy(), cmap="viridis", s=2.0, linewidths=0)
    size = x.shape[1]
    axis.set(xlim=(0, size), ylim=(0, size), zlim=(0, size))
    axis.set_box_aspect((1, 1, 1), zoom=1.6)
    axis.view_init(elev=20, azim=-55)
