"""Margins of a convolution: centered, and filled with zeros, reflected, repeated or periodic values."""

from collections.abc import Sequence
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from steerformer.nn.ops import pad

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
"""What lies outside the grid: zeros; the grid reflected at its outermost voxels; these voxels; the grid repeated."""


def require_padding_mode(mode: object) -> None:
    """Raise ``ValueError`` unless ``mode`` is a :data:`PaddingMode`."""
    if mode not in get_args(PaddingMode):
        raise ValueError(f"padding_mode is one of {get_args(PaddingMode)}, got {mode!r}.")


def pad_margins(
    x: Float[Tensor, "batch channels *space"], margins: Sequence[int], mode: PaddingMode
) -> tuple[Float[Tensor, "batch channels *new"], list[int]]:
    """The field with its margins, and the margins of zeros or crops that are left to the convolution."""
    if mode == "zeros" or not any(margin > 0 for margin in margins):
        return x, list(margins)
    for i, (size, margin) in enumerate(zip(x.shape[2:], margins, strict=True)):
        most = {"reflect": size - 1, "circular": size}.get(mode, margin)
        if margin > most:
            raise ValueError(
                f"padding_mode={mode!r} can add {most} voxels on each side of spatial axis {i}, which has {size}, but "
                f"the convolution needs {margin}; use a smaller kernel, a larger grid, 'replicate' or 'zeros'."
            )
    return pad(x, [max(margin, 0) for margin in margins], mode=mode), [min(margin, 0) for margin in margins]


def centered_margin(size: int, window: int, stride: int, padding: int | None) -> int:
    """Padding on each side of an axis that centers windows a stride apart on it; negative values crop.

    ``padding`` is the requested padding; ``None`` requests ``ceil(size / stride)`` outputs. Where that cannot be
    centered, there is one output more or fewer: first fewer if padding was requested, because more would need more.
    """
    outputs = (size + stride - 1) // stride if padding is None else (size + 2 * padding - window) // stride + 1
    if outputs < 1:
        raise ValueError(f"a window of {window} voxels does not fit into an axis of {size} with padding {padding}.")
    requested = 0 if padding is None else padding
    for count in (outputs, outputs + 1, outputs - 1) if padding is None else (outputs, outputs - 1, outputs + 1):
        both_sides = stride * (count - 1) + window - size
        outside = both_sides >= 2 * window > 2 * requested  # whole windows of zeros that were not requested
        if both_sides % 2 == 0 and count >= 1 and not outside:
            return both_sides // 2
    width, grid = ("odd", "an even") if size % 2 else ("even", "an odd")
    raise ValueError(
        f"a window of {window} voxels with stride {stride} cannot be centered on an axis of {size}: it would need "
        f"half a voxel of padding; use a kernel with {width} width, or {grid} grid, or stride 1 and AvgPool."
    )
