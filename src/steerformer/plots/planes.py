"""Planes through a grid: the whole image, or a slice of a volume."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor


class Plane(NamedTuple):
    """Spatial axes along rows and columns; of a volume also the axis across the plane, and the slice along it."""

    rows: int
    columns: int
    normal: int | None
    place: int

    def cut(self, x: Tensor) -> Tensor:
        """The values of ``(..., *space)`` on the plane."""
        dim = 2 if self.normal is None else 3
        return x if self.normal is None else x.select(x.ndim - dim + self.normal, self.place)

    def panel_size(self, space: Sequence[int], side: float) -> tuple[float, float]:
        """Width and height of a panel without distortion, with its labels; the longer is ``side``, at least a third."""
        rows, columns = space[self.rows], space[self.columns]
        longer = max(rows, columns)
        return side * max(columns / longer, 1 / 3), (side - 0.6) * max(rows / longer, 1 / 3) + 0.6

    @property
    def title(self) -> str:
        """Which slice of a volume this is; empty for an image."""
        return "" if self.normal is None else f"slice {self.place} along axis {self.normal}"


def plane_through(space: Sequence[int], axis: int = -1, *, through: Sequence[int] | None = None) -> Plane:
    """The plane of an image, or the slice of a volume across ``axis``, the middle one or that ``through`` a voxel."""
    if len(space) == 2:
        return Plane(0, 1, None, 0)
    if len(space) != 3 or not -3 <= axis < 3:
        raise ValueError(f"a plane lies in two or three spatial axes, got a grid {tuple(space)} and axis {axis}.")
    normal = axis % 3
    rows, columns = (other for other in range(3) if other != normal)
    return Plane(rows, columns, normal, space[normal] // 2 if through is None else through[normal])


def draw_plane(axes: Axes, values: Tensor, plane: Plane, *, title: str, **options: Any) -> AxesImage:
    """Draw ``(rows, columns)`` with the first axis downwards, as tensors are printed."""
    axes.set_title(title, fontsize=9)
    shown = axes.imshow(values.numpy(), interpolation="nearest", **options)
    axes.set_xlabel(f"axis {plane.columns} [voxels]", fontsize=8)
    axes.set_ylabel(f"axis {plane.rows} [voxels]", fontsize=8)
    axes.tick_params(labelsize=7)
    for direction in (axes.xaxis, axes.yaxis):
        direction.set_major_locator(MaxNLocator(5, integer=True))
    return shown


def add_colorbar(figure: Figure, shown: AxesImage, panels: Sequence[Axes], label: str) -> None:
    """A narrow colorbar to the right of the panels."""
    bar = figure.colorbar(shown, ax=list(panels), fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)


def pale(name: str, low: float, high: float) -> Colormap:
    """A part of a colormap, such as its light colors, on which arrows are visible."""
    return ListedColormap(matplotlib.colormaps[name](np.linspace(low, high, 256)), name=f"pale {name}")
