"""Accuracy against the angle by which samples are turned."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from steerformer.audit.rotations import about, input_type, sweep_axes, turn


def accuracy_by_angle(
    model: nn.Module,
    x: Float[Tensor, "batch channels *space"],
    labels: Int[Tensor, "batch"],
    angles: Sequence[float | int],
    *,
    mode: str = "bilinear",
    batch_size: int = 256,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Accuracy at each angle (in degrees), for each axis of :func:`~steerformer.audit.sweep_axes`."""
    group = input_type(model).group
    found: dict[str, list[float]] = {}
    for name, axis in sweep_axes(group).items():
        found[name] = []
        for angle in angles:
            R = about(group, angle, axis)
            right = 0
            with torch.no_grad():
                for inputs, targets in zip(x.split(batch_size), labels.split(batch_size), strict=True):
                    right += (model(turn(model, inputs, R, mode=mode)).argmax(1) == targets).sum().item()
            found[name].append(right / len(x))
            progress()
    return found
