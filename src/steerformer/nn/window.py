"""Smooth radial window on a grid."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._guards import detect_fake_mode

from steerformer.fields import FieldType, as_number, require_field_type, voxel_coordinates
from steerformer.nn.ops import is_traced, require_space


class RadialWindow(nn.Module):
    r"""Smooth radial window: keep a field near the center of the grid, and let it fall to zero towards the edge.

    $$g(x) = w(|x|)\, f(x), \qquad w = 1 \text{ up to } R - width / 2, \text{ and } 0 \text{ from } R + width / 2$$

    $R = (n - 1) / 2$ is the distance of the outermost voxels of the shortest axis, where $w = 1/2$.
    Sums over a whole square or cube, such as those of attention or of a kernel that covers the grid, change when the
    content rotates, because the corners hold other parts of it. Behind a radial window they change much less. The
    window commutes with all rotations about the center of the grid, but not with translations.

    Args:
        field_type: type of input and output.
        width: distance over which the window falls from 1 to 0, in voxels.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.RadialWindow(features, width=1.5)(features.randn(2, 7)).shape
    torch.Size([2, 24, 7, 7])
    """

    def __init__(self, field_type: FieldType, *, width: float) -> None:
        super().__init__()
        require_field_type(field_type, "RadialWindow")
        self.in_type = self.out_type = field_type
        self.width = require_width(width)
        self.window_center: tuple[float, ...] | None = None
        """Center of the window, in voxels from that of the grid; audits move it."""

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Multiply a field of type ``in_type`` by the window."""
        require_space(self.in_type, x, "RadialWindow")
        return x * radial_window(tuple(x.shape[2:]), self.width, x, center=self.window_center)

    def extra_repr(self) -> str:
        return f"{self.in_type}, width={self.width}"


def require_width(width: float) -> float:
    """The width of a window as a number; ``ValueError`` unless it is positive."""
    number = as_number(width)
    if not 0 < number < math.inf:
        raise ValueError(f"the width of a window is a positive number of voxels, got {width!r}.")
    return number


def radial_window(
    space: tuple[int, ...], width: float, like: Tensor, *, center: tuple[float, ...] | None = None
) -> Float[Tensor, "*space"]:
    """Weights of all voxels of a grid: 1 in its middle, 1/2 at the outermost voxels of its shortest axis.

    ``center`` is that of the window, in voxels from the center of the grid.
    """
    if is_traced(like) or detect_fake_mode(like) is not None:
        return _weights(space, width, center).to(like)  # torch operations only, and no cache
    return _shared_weights(space, width, center, like.dtype, like.device)


@lru_cache(maxsize=32)
def _shared_weights(
    space: tuple[int, ...],
    width: float,
    center: tuple[float, ...] | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():  # kept for later calls, which may need gradients
        weights = _weights(space, width, center)
        if not weights.any():
            raise ValueError(f"a window of width {width} leaves no voxel of a grid of {space}; use a larger width.")
        return weights.to(device=device, dtype=dtype)


def _weights(space: Sequence[int], width: float, center: tuple[float, ...] | None) -> Tensor:
    with torch.device("cpu"):
        places = voxel_coordinates(space)
        if center is not None:
            places = places - torch.tensor(center, dtype=places.dtype)
        inside = (min(space) - 1) / 2 - places.norm(dim=-1)
    return smooth_step(0.5 + inside / width)


def smooth_step(t: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """0 up to 0, 1 from 1 on, and twice differentiable between them."""
    t = t.clamp(0, 1)
    return t**3 * (10 - 15 * t + 6 * t**2)
