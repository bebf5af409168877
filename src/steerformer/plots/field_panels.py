"""Figures of fields: scalars as images, vectors as arrows, norms of higher degrees."""

import math
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.fields import FieldType, require_field_type, to_cartesian
from steerformer.plots.planes import Plane, add_colorbar, draw_plane, pale, plane_through

_SIDE = 2.6  # of a panel, in inches
_MOST_ARROWS = 14  # along a side


def field_figure(
    x: Float[Tensor, "batch channels *space"],
    field_type: FieldType,
    *,
    sample: int = 0,
    copies: int = 4,
    axis: int = -1,
) -> Figure:
    """Draw a field: a row for each degree, a panel for each copy.

    Scalars are images of their real part. Vectors are arrows over an image of their length; in volumes the arrows are
    the part of the vector inside the slice, over an image of its component across the slice, both of the real part
    (:func:`~steerformer.to_cartesian`). Of higher degrees the norm is drawn. The first axis of the tensor points
    downwards, the second to the right, and arrows are in the same frame.

    Args:
        x: field of type ``field_type``.
        field_type: type of the field.
        sample: which sample of the batch.
        copies: largest number of copies of each degree to draw.
        axis: of volumes, the axis across the drawn slice, which is the middle one.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO3, "2x0+2x1+1x2")
    >>> figure = sf.viz.field(features.randn(1, 8), features)
    >>> [axes.get_title() for axes in figure.axes[:3]]
    ['degree 0, copy 0', 'degree 0, copy 1', 'degree 1, copy 0']
    """
    require_field_type(field_type, "viz.field")
    field_type.require_channels(x)
    plane = plane_through(x.shape[2:], axis)
    x = x[[sample]].detach().cpu().float()
    if copies < 1:
        raise ValueError(f"viz.field draws at least 1 copy, got copies={copies}.")
    columns = min(copies, max(field_type.multiplicities))
    rows = [_row(x, field_type, degree, columns, plane) for degree in field_type.degrees]
    width, height = plane.panel_size(x.shape[2:], _SIDE)
    figure = Figure(figsize=(width * columns + 1.0, (height + 0.1) * len(rows) + 0.3), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for panels, row in zip(grid, rows, strict=True):
        _draw_row(figure, list(panels), row, plane)
    figure.suptitle(plane.title, fontsize=10)
    return figure


class _Row(NamedTuple):
    """What is drawn of one degree: an image of each copy, its meaning, colors and range, and arrows."""

    degree: int
    images: Float[Tensor, "copy row column"]
    label: str
    colors: Colormap | str
    is_signed: bool
    arrows: Float[Tensor, "copy 2 row column"] | None = None


def _row(x: Tensor, field_type: FieldType, degree: int, copies: int, plane: Plane) -> _Row:
    chosen = {degree: slice(copies)}
    some, x = field_type.subtype(chosen), field_type.select(x, chosen)
    if degree == 0:
        images = plane.cut(some.split(x)[0][0, 0, 0])
        return _Row(0, images, "value", "gray", False) if some.real else _Row(0, images, "real part", "RdBu_r", True)
    if degree > 1:
        norms = some.split(x)[0][0].square().sum(dim=(0, 1)).sqrt()
        return _Row(degree, plane.cut(norms), "norm", "viridis", False)
    v = plane.cut(to_cartesian(x, some)[0])  # copy, component, row, column
    arrows = v[:, [plane.rows, plane.columns]]
    if plane.normal is None:
        return _Row(1, v.square().sum(dim=1).sqrt(), "length", pale("Blues", 0.0, 0.6), False, arrows)
    return _Row(1, v[:, plane.normal], f"component along axis {plane.normal}", pale("RdBu_r", 0.2, 0.8), True, arrows)


def _draw_row(figure: Figure, panels: Sequence[Axes], row: _Row, plane: Plane) -> None:
    low, high = _limits(row)
    longest = 0.0 if row.arrows is None else row.arrows.square().sum(dim=1).max().sqrt().item()
    for copy, axes in enumerate(panels):
        if copy >= len(row.images):
            axes.axis("off")
            continue
        title = f"degree {row.degree}, copy {copy}"
        shown = draw_plane(axes, row.images[copy], plane, title=title, cmap=row.colors, vmin=low, vmax=high)
        if row.arrows is not None:
            draw_arrows(axes, row.arrows[copy], longest=longest)
        if copy:
            axes.set_ylabel("")
    add_colorbar(figure, shown, panels, row.label)


def _limits(row: _Row) -> tuple[float, float]:
    high = row.images.max().item()
    if row.is_signed:
        largest = row.images.abs().max().item() or 1.0
        return -largest, largest
    return (0.0, high or 1.0) if row.degree else (row.images.min().item(), high)


def draw_arrows(axes: Axes, arrows: Float[Tensor, "2 row column"], *, longest: float) -> None:
    """Arrows with components along rows and columns; one of length ``longest`` reaches just beyond its neighbors."""
    sizes = arrows.shape[1:]
    # arrows of rotated fields are rotated arrows if they are centered: not possible with an even step on an even axis
    step = next(step for step in count(math.ceil(max(sizes) / _MOST_ARROWS)) if all(n % 2 or step % 2 for n in sizes))
    starts = [next(i for i in range(step) if (n - 1 - 2 * i) % step == 0) for n in sizes]
    down, right = arrows[:, starts[0] :: step, starts[1] :: step].numpy()
    places = [np.arange(start, n, step) for start, n in zip(starts, sizes, strict=True)]
    axes.quiver(
        places[1],
        places[0],
        right,
        down,
        angles="xy",  # as in data coordinates, whose second axis points downwards
        scale_units="xy",
        scale=(longest or 1.0) / (1.3 * step),
        pivot="mid",
        color="#1a1a1a",
        width=0.011,
        headwidth=3.6,
        headlength=4,
        headaxislength=3.6,
        minlength=0,
    )
