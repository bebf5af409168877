"""Finer or coarser grids over the same extent, by linear interpolation."""

from collections.abc import Sequence
from math import inf

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.nn.ops import interpolate, per_axis, require_space


class Resample(nn.Module):
    """Bilinear (in space: trilinear) interpolation to a grid that covers the same extent, centre on centre.

    Args:
        field_type: type of input and output.
        scale: new size over old, such as 2; the new size is rounded.
        size: the new size itself, for all axes or for each. Give one of the two, here or (size) in the call.
    """

    def __init__(
        self, field_type: FieldType, *, scale: int | float | None = None, size: int | Sequence[int] | None = None
    ) -> None:
        super().__init__()
        if scale is not None and size is not None:
            raise ValueError(f"Resample takes a scale or a size, got both ({scale}, {size}).")
        if scale is not None and not 0 < scale < inf:
            raise ValueError(f"the scale of Resample is above 0 and finite, got {scale}.")
        self.in_type = self.out_type = field_type
        self.scale, self.size = scale, size

    def forward(
        self, x: Float[Tensor, "batch channels *space"], size: int | Sequence[int] | None = None
    ) -> Float[Tensor, "batch channels *new"]:
        require_space(self.in_type, x, "Resample")
        wanted = self.size if size is None else size
        if wanted is None:
            if self.scale is None:
                raise ValueError("Resample was given neither scale nor size; pass a size in the call.")
            wanted = [max(round(n * self.scale), 1) for n in x.shape[2:]]
        return interpolate(x, per_axis(wanted, self.in_type.group.dim, "the size of Resample"))

    def extra_repr(self) -> str:
        return f"scale={self.scale}, size={self.size}"
