"""Relative equivariance error against the rotation angle."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from steerformer.audit.rotations import rotation_about, sweep_axes
from steerformer.fields import FieldType
from steerformer.models import CNN, Classifier, eval_mode
from steerformer.plots.curves import ANGLE_LABEL
from steerformer.plots.style import PALETTE, add_legend, new_figure
from steerformer.testing import Scene, blobs, end_type, equivariance_error

_LEAST = 1e-9  # errors below, such as 0 at 0 degrees, are drawn here


def equivariance_figure(
    model: nn.Module,
    *,
    angles: Sequence[float | int] | None = None,
    size: int | Sequence[int] | None = None,
    scene: Scene | None = None,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> Figure:
    """Draw the relative equivariance error of a layer or model in eval mode against the rotation angle.

    Inputs are analytic scenes, rotated before they are sampled, and outputs are compared at the central voxel, as in
    :func:`~steerformer.testing.equivariance_error`: no interpolation error enters. There is a line for each rotation
    axis of the grid; in the plane, also one for each degree of the output. Errors below 1e-9 are drawn there.

    Args:
        model: layer or model.
        angles: rotation angles in degrees; by default from 0 to 180 in steps of 15.
        size: grid size on which the scene is sampled, odd unless the output has no spatial axes; by default that of a
            classifier's configuration, else 15.
        scene: input; by default random :func:`~steerformer.testing.blobs`, 8 samples.
        in_type, out_type: field types, if neither the model nor the ends of a ``Sequential`` have these attributes.

    >>> import steerformer as sf
    >>> image, features = sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, "2x0+2x1")
    >>> figure = sf.viz.equivariance(sf.nn.Conv(image, features, kernel_size=5), angles=[0, 30, 60, 90])
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['total', 'degree 0', 'degree 1']
    """
    in_type, out_type = in_type or end_type(model, "in_type"), out_type or end_type(model, "out_type")
    tried = list(range(0, 181, 15)) if angles is None else list(angles)
    if size is None:
        size = model.config.size if isinstance(model, Classifier | CNN) else 15
    scene = scene or blobs(in_type, batch=8)
    measure = partial(equivariance_error, model, scene=scene, size=size, in_type=in_type, out_type=out_type)
    rotation_axes = list(sweep_axes(in_type.group).values())
    curves = {}
    for number, axis in enumerate(rotation_axes):
        with eval_mode(model):
            errors = [measure(rotation_about(in_type.group, angle, axis)) for angle in tried]
        in_plane = len(rotation_axes) == 1
        curves["total" if in_plane else f"about axis {number}"] = [error.total for error in errors]
        if in_plane and len(out_type.degrees) > 1:
            curves |= {f"degree {d}": [error.per_degree[d] for error in errors] for d in out_type.degrees}
    return _draw_curves(tried, curves)


def _draw_curves(angles: Sequence[float | int], curves: Mapping[str, Sequence[float]]) -> Figure:
    figure, axes = new_figure(7.2, 3.8)
    for (name, errors), color in zip(curves.items(), cycle(PALETTE), strict=False):
        style, width = (".--", 1.1) if name.startswith("degree") else (".-", 1.8)
        axes.semilogy(angles, np.maximum(errors, _LEAST), style, color=color, label=name, linewidth=width)
    axes.set(xlabel=ANGLE_LABEL, ylabel="relative equivariance error")
    axes.set_xticks([angle for angle in angles if angle % 45 == 0] or angles)
    add_legend(axes)
    return figure
