"""Equivariant up- and downsampling by linear interpolation."""

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.ops import interpolate, interpolates_fast, per_axis, require_space
from steerformer.nn.separable import AxisMap, has_fast_products, map_axes


class Resample(nn.Module):
    r"""Equivariant up- or downsampling: bilinear or trilinear interpolation to a grid over the same extent.

    $$g(x_i) = \sum_j \Lambda(x_i - x_j)\, f(x_j)$$

    with the linear interpolation kernel $\Lambda$ and both grids centered on each other (torch's
    ``align_corners=False``), so resampling commutes exactly with the rotations of the grid. It has no low-pass filter:
    use :class:`AvgPool` to downsample.

    Args:
        field_type: type of input and output.
        scale: new size divided by old size, for all axes; the new size is rounded.
        size: new size, for all axes or for each. Give ``scale``, or ``size`` here or in the call.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Output: $(N, C, *space_{out})$, of the given size or $\mathrm{round}(scale \cdot size)$ along each axis.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.Resample(features, scale=2)(features.randn(2, 8)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(
        self, field_type: FieldType, *, scale: int | float | None = None, size: int | Sequence[int] | None = None
    ) -> None:
        super().__init__()
        require_field_type(field_type, "Resample")
        if scale is not None and size is not None:
            raise ValueError(f"Resample takes a scale or a size, got both ({scale}, {size}).")
        if scale is not None and not 0 < as_number(scale) < inf:
            raise ValueError(f"the scale of Resample is a number above 0 and finite, for all axes, got {scale!r}.")
        self.in_type = self.out_type = field_type
        self.scale, self.size = scale, None if size is None else self._per_axis(size)

    def forward(
        self, x: Float[Tensor, "batch channels *space"], size: int | Sequence[int] | None = None
    ) -> Float[Tensor, "batch channels *new"]:
        """Interpolate a field of type ``in_type``.

        Args:
            x: the field.
            size: new size; overrides ``scale`` and ``size`` of the layer.
        """
        require_space(self.in_type, x, "Resample")
        new = self._scaled(x.shape[2:]) if size is None else self._per_axis(size)
        if not has_fast_products(x):
            return interpolate(x, new)
        maps = [_linear_interpolation(x, n, m) for n, m in zip(x.shape[2:], new, strict=True)]
        return map_axes(x, maps, values=partial(interpolate, size=new) if interpolates_fast(x, new) else None)

    def _scaled(self, space: Sequence[int]) -> Sequence[int]:
        if self.size is not None:
            return self.size
        if self.scale is None:
            raise ValueError("Resample has neither scale nor size; pass a size in the call.")
        return [_rounded(n * self.scale) for n in space]

    def _per_axis(self, size: int | Sequence[int]) -> tuple[int, ...]:
        return per_axis(size, self.in_type.group.dim, "the size of Resample")

    def extra_repr(self) -> str:
        return f"{self.in_type}, scale={self.scale}, size={self.size}"


def _rounded(size: Any) -> Any:
    """The nearest size above 0; also of sizes that torch.jit.trace records, which are tensors."""
    rounded: Any = size.round().long().clamp_min(1) if isinstance(size, Tensor) else max(round(size), 1)
    return rounded


def _linear_interpolation(x: Tensor, old: int, new: int) -> AxisMap | None:
    """Matrix of linear interpolation along one axis, in the dtype of ``x``."""
    if old == new:
        return None
    basis = torch.eye(old, dtype=torch.float64, device=x.device)[None]
    matrix = F.interpolate(basis, size=new, mode="linear", align_corners=False)[0].mT
    step = old / new
    return AxisMap(matrix.to(x.dtype).contiguous(), start=(step - 1) / 2, step=step, reach=1)
