"""Whether functions of fields on volumes commute with a rotation by 90 degrees, for e3nn and escnn."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

ABOUT_LAST_AXIS = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
"""Takes the first axis of the tensor to the second."""
ESCNN_AXES = torch.tensor([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 0.0]])
"""escnn's coordinates x, y and z from those along the axes of the tensor."""
_SIZE, _TOLERANCE = 7, 1e-4


def rotate_grid(x: Tensor) -> Tensor:
    """Move the voxels of ``(batch, channels, *space)``."""
    return x.rot90(1, (2, 3))


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


def e3nn_commutes(function: Callable[[Tensor], Tensor], irreps_in: str, irreps_out: str, size: int = _SIZE) -> bool:
    from e3nn import o3

    def rotate(x: Tensor, irreps: str) -> Tensor:
        D = o3.Irreps(irreps).D_from_matrix(ABOUT_LAST_AXIS)
        return torch.einsum("oi,bixyz->boxyz", D, rotate_grid(x))

    x = torch.randn(2, o3.Irreps(irreps_in).dim, *(size,) * 3)
    with torch.no_grad():
        return relative_difference(function(rotate(x, irreps_in)), rotate(function(x), irreps_out)) < _TOLERANCE


def escnn_commutes(
    function: Callable[[Any], Any], in_type: Any, size: Sequence[int] = (_SIZE,) * 3, tolerance: float = _TOLERANCE
) -> bool:
    """escnn's own rotation of the grid interpolates, and loses voxels at its border."""
    rotation = ESCNN_AXES @ ABOUT_LAST_AXIS @ ESCNN_AXES.mT
    element = in_type.gspace.fibergroup.element(rotation.double().numpy(), "MAT")
    x = in_type(torch.randn(2, in_type.size, *size))
    with torch.no_grad():
        y, moved = function(x), function(in_type(rotate_grid(in_type.transform_fibers(x.tensor, element))))
        expected = rotate_grid(y.type.transform_fibers(y.tensor, element))
    return relative_difference(moved.tensor, expected) < tolerance
