"""Figures of attention: where one query attends to, and how much attention each voxel receives."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor, nn

from steerformer.audit import attention_maps
from steerformer.models import eval_mode
from steerformer.plots.planes import Plane, add_colorbar, draw_plane, plane_through

_SIDE = 2.5  # of a panel, in inches


def attention_figure(
    layer: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    context: Float[Tensor, "batch others *keys"] | None = None,
    *,
    query: Sequence[int] | None = None,
    sample: int = 0,
    heads: int = 4,
    axis: int = -1,
) -> Figure:
    r"""Draw the attention of a layer or model on an input: a row for each attention layer in it.

    The first panel is the input: its value, or the norm of its channels. A panel for each head has the weights $a_{ij}$
    of one query $i$, marked by a cross, at all keys $j$; the last panel has the attention $\sum_i a_{ij}$ that each
    voxel receives, the mean of all heads. Both are relative to uniform attention: 1 if all voxels are attended to
    equally.

    Args:
        layer: an :class:`~steerformer.nn.Attention`, or a module that contains such layers; evaluated in eval mode.
        x: its input, on a grid where attention layers see at most 4096 voxels.
        context: second input of a layer or model with cross-attention, on a grid of the same size.
        query: voxel of the query on the grid of the attention layers; by default the central one.
        sample: which sample of the batch.
        heads: largest number of heads to draw.
        axis: of volumes, the axis across the drawn slice, which goes through the query.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, "4x0+4x1")
    >>> figure = sf.viz.attention(sf.nn.Attention(features, num_heads=2), features.randn(1, 9))
    >>> [axes.get_title() for axes in figure.axes[:4]]
    ['input', 'head 0', 'head 1', 'received']
    """
    with eval_mode(layer):
        maps = attention_maps(layer, x[[sample]], *([] if context is None else [context[[sample]]]))
    if not maps:
        raise TypeError(f"viz.attention draws Attention layers, but {type(layer).__name__} contains none.")
    same_size = context is None or context.shape[2:] == x.shape[2:]
    if not same_size or any(math.prod(weights.shape[3:]) != weights.shape[2] for weights in maps):
        raise ValueError("viz.attention draws cross-attention on grids of one size; crop or resample the context.")
    if heads < 1:
        raise ValueError(f"viz.attention draws at least 1 head, got heads={heads}.")
    features = x[sample].detach().cpu().float()
    columns = 2 + min(heads, max(weights.shape[1] for weights in maps))
    width, height = plane_through(features.shape[1:], axis).panel_size(features.shape[1:], _SIDE)
    size = (width * columns + 2.4, height * len(maps) + 0.5)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1))
    grid = figure.subplots(len(maps), columns, squeeze=False)
    for number, (panels, weights) in enumerate(zip(grid, maps, strict=True)):
        voxel = _query(query, weights.shape[3:])
        _draw_input(figure, panels[0], features, _voxel_of_input(voxel, weights.shape[3:], features.shape[1:]), axis)
        _draw_weights(figure, list(panels[1:]), weights[0].cpu().float(), voxel, axis)
        figure.suptitle(plane_through(weights.shape[3:], axis, through=voxel).title, fontsize=10)
        if len(maps) > 1:
            panels[1].set_ylabel(f"attention layer {number}", fontsize=9)
    return figure


def _query(query: Sequence[int] | None, grid: Sequence[int]) -> tuple[int, ...]:
    voxel = tuple(n // 2 for n in grid) if query is None else tuple(query)
    if len(voxel) != len(grid) or not all(0 <= place < n for place, n in zip(voxel, grid, strict=True)):
        raise ValueError(f"a query is a voxel of the attention's grid {tuple(grid)}, got {voxel}.")
    return voxel


def _voxel_of_input(voxel: Sequence[int], grid: Sequence[int], space: Sequence[int]) -> list[int]:
    """The voxel of the input below a voxel of a coarser grid with the same center."""
    return [round((place + 0.5) * n / count - 0.5) for place, count, n in zip(voxel, grid, space, strict=True)]


def _draw_input(figure: Figure, axes: Axes, x: Tensor, voxel: Sequence[int], axis: int) -> None:
    plane = plane_through(x.shape[1:], axis, through=voxel)
    shown = draw_plane(axes, plane.cut(x[0] if len(x) == 1 else x.norm(dim=0)), plane, title="input", cmap="gray")
    _mark(axes, voxel, plane)
    add_colorbar(figure, shown, [axes], "value" if len(x) == 1 else "norm")


def _draw_weights(
    figure: Figure, panels: Sequence[Axes], weights: Float[Tensor, "head query *grid"], voxel: Sequence[int], axis: int
) -> None:
    """Panels of the heads, and the attention received in the last one."""
    *of_heads, last = panels
    received = weights.mean(0).sum(0)
    plane = plane_through(received.shape, axis, through=voxel)
    query = int(np.ravel_multi_index(tuple(voxel), received.shape))
    maps = plane.cut(weights[: len(of_heads), query] * received.numel())
    for axes in of_heads[len(maps) :]:
        axes.axis("off")
    for head, (axes, values) in enumerate(zip(of_heads, maps, strict=False)):
        shown = draw_plane(axes, values, plane, title=f"head {head}", cmap="inferno", **_limits(maps))
        _mark(axes, voxel, plane)
    add_colorbar(figure, shown, of_heads[: len(maps)], "weight / uniform")
    shown = draw_plane(last, plane.cut(received), plane, title="received", cmap="viridis", **_limits(received))
    add_colorbar(figure, shown, [last], "attention / uniform")
    for axes in panels:
        axes.set_ylabel("")


def _limits(values: Tensor) -> dict[str, float]:
    """The range of the values, but at least 10 % around 1: rounding errors of uniform attention are invisible."""
    return {"vmin": min(values.min().item(), 0.9), "vmax": max(values.max().item(), 1.1)}


def _mark(axes: Axes, voxel: Sequence[int], plane: Plane) -> None:
    axes.plot(voxel[plane.columns], voxel[plane.rows], "x", color="#35d0ff", markersize=7, markeredgewidth=2)
