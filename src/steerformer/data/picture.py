"""A picture of samples: some of each class, or some of each set with their labels."""

from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steerformer.data.base import Samples, Splits
from steerformer.data.cases import Cases
from steerformer.data.outlines import outlined, show
from steerformer.files import write_whole

_MOST_CLASSES = 12
_SIGN = "steerformer data"


def write_picture(splits: Splits, path: Path, *, columns: int = 6) -> None:
    """Write a PNG: of samples a row for each class, of cases with their labels outlined a row for each set."""
    figure = outlined(splits, columns) if isinstance(splits.train, Cases) else _by_class(splits, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = BytesIO()
    figure.savefig(written, dpi=110, format="png", metadata={"Software": _SIGN})
    write_whole(path, written.getvalue())


def _by_class(splits: Splits, columns: int) -> Any:
    """A row for each class: training samples left, test samples right."""
    from matplotlib.figure import Figure

    assert isinstance(splits.train, Samples) and isinstance(splits.test, Samples)
    classes = splits.classes[:_MOST_CLASSES]
    x, _ = splits.train[0]
    volume = x.ndim == 4 and _is_surface(x)
    figure = Figure(figsize=(1.35 * columns + 0.9, 1.35 * len(classes) + 0.4), layout="constrained")
    axes = figure.subplots(len(classes), columns, squeeze=False, subplot_kw={"projection": "3d"} if volume else {})
    halves = ((splits.train, range(columns // 2)), (splits.test, range(columns // 2, columns)))
    for row, name in enumerate(classes):
        for samples, places in halves:
            chosen = _first(samples, row, len(places))
            for column, index in zip(places, chosen, strict=False):
                _draw(axes[row][column], samples[index][0])
        for axis in axes[row]:
            axis.set_axis_off()
        label = axes[row][0].text2D if volume else axes[row][0].text
        label(-0.08, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=9, rotation=90)
    for column, title in ((0, "to train on"), (columns // 2, "to test on")):
        axes[0][column].set_title(title, fontsize=9, loc="left")
    return figure


def is_ours(path: Path) -> bool:
    """Whether :func:`write_picture` wrote the file, which then may be written over."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.info.get("Software") == _SIGN
    except (OSError, SyntaxError, ValueError):
        return False


def _first(samples: Samples, label: int, count: int) -> list[int]:
    return (samples.labels == label).nonzero().flatten()[:count].tolist()


def _is_surface(x: Tensor) -> bool:
    """Whether a volume is a surface in empty space, which one sees best from outside."""
    return float(x.min()) == 0 and float(x.max()) <= 1 and float((x == 0).float().mean()) > 0.5


def _draw(axis: Any, x: Tensor) -> None:
    if axis.name == "3d":
        _draw_surface(axis, x)
    elif x.ndim == 4:
        show(axis, x[..., x.shape[-1] // 2].mT, origin="lower")  # a slice through the middle, seen from above
    else:
        show(axis, x)


def _draw_surface(axis: Any, x: Tensor) -> None:
    places = (x[0] > x.max() / 2).nonzero().float()
    depth = places @ torch.tensor([0.5, -0.7, 0.5])
    axis.scatter(*places.T.numpy(), c=depth.numpy(), cmap="viridis", s=2.0, linewidths=0)
    size = x.shape[1]
    axis.set(xlim=(0, size), ylim=(0, size), zlim=(0, size))
    axis.set_box_aspect((1, 1, 1), zoom=1.6)
    axis.view_init(elev=20, azim=-55)
