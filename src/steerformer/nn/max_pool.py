"""Equivariant max pooling, by norms."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.nn.ops import length, pad, per_axis, places_of_maxima, require_space, split_runs


class NormMaxPool(nn.Module):
    r"""Equivariant max pooling: of each irrep copy the vector of largest norm in a window.

    $$g_c(x) = f_c(x + z^*), \qquad z^* = \arg\max_{z} \|f_c(x + z)\|$$

    for every irrep copy $c$ by itself, over windows that are centered on the grid. Rotations keep norms, so the chosen
    vector is the same one, rotated: exactly for the rotations of the grid, unless different vectors of a window have
    equal norms. It has no low-pass filter: at other angles the longest vector of a window depends on where its voxels
    lie, and :class:`AvgPool` with ``antialiased`` has far smaller errors.

    A grid that the windows do not fill is cropped equally on both sides; where that leaves half a voxel, windows are
    one voxel longer and share the voxels at their edges. Of real scalars, the one of largest absolute value is chosen,
    not the largest as in torch's max pooling.

    Args:
        field_type: type of input and output.
        kernel_size: size of the windows in voxels, for all axes or for each.
        stride: distance between windows; ``kernel_size`` by default.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Output: $(N, C, *space_{out})$ with ``(size - kernel_size) // stride + 1`` voxels along each axis.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.NormMaxPool(features, kernel_size=2)(features.randn(2, 15)).shape
    torch.Size([2, 24, 7, 7])
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        require_field_type(field_type, "NormMaxPool")
        dim = field_type.group.dim
        self.in_type = self.out_type = field_type
        self.kernel_size = per_axis(kernel_size, dim, "kernel_size")
        self.stride = self.kernel_size if stride is None else per_axis(stride, dim, "stride")

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *coarse"]:
        """Pool a field of type ``in_type``."""
        require_space(self.in_type, x, "NormMaxPool")
        windows, margins = [], []
        for i, (n, size, stride) in enumerate(zip(x.shape[2:], self.kernel_size, self.stride, strict=True)):
            if n < size:
                raise ValueError(f"a window of {size} voxels does not fit into spatial axis {i}, which has {n}.")
            rest = (n - size) % stride
            windows.append(size + rest % 2)
            margins.append(-(rest // 2))
        pieces = split_runs(self.in_type, pad(x, margins))
        with torch.no_grad():
            norms = torch.cat([length(piece.flatten(1, 2)) for piece in pieces], dim=1)
            places = places_of_maxima(norms, windows, self.stride)
        chosen = places.split([piece.shape[3] for piece in pieces], dim=1)
        return self.in_type.pack(_taken(piece, place) for piece, place in zip(pieces, chosen, strict=True))

    def extra_repr(self) -> str:
        return f"{self.in_type}, kernel_size={self.kernel_size}, stride={self.stride}"


def _taken(piece: Float[Tensor, "batch part order copy *space"], places: Tensor) -> Tensor:
    """The vectors at these places, ``(batch, copy, *coarse)``, numbered along all spatial axes together."""
    parts, orders = piece.shape[1:3]
    indices = places.flatten(2)[:, None, None].expand(-1, parts, orders, -1, -1)
    return piece.flatten(4).gather(4, indices).unflatten(4, places.shape[2:])
