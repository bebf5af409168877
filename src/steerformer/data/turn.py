"""Turning a batch of images or volumes, each by a rotation of its own."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import voxel_coordinates


def turn(
    x: Float[Tensor, "batch channels *space"], R: Float[Tensor, "batch dim dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *space"]:
    r"""Scalar fields turned about the centre of the grid, $f_b(R_b^{-1} x)$: :meth:`FieldType.rotate` for many.

    ``mode`` is ``"bilinear"`` (in space trilinear) or ``"nearest"``; what comes from outside is zero.
    """
    size = x.shape[2:]
    sources = voxel_coordinates(size).to(x).flatten(0, -2) @ R.to(x)  # row vectors: R^-1 x
    half = torch.tensor([(n - 1) / 2 for n in size], dtype=x.dtype)
    grid = (sources / half).flip(-1).unflatten(1, size)  # grid_sample wants the last axis first
    return F.grid_sample(x, grid, mode=mode, align_corners=True)


def plane_rotations(angles: Float[Tensor, "batch"]) -> Float[Tensor, "batch 2 2"]:
    """Matrices of rotations by ``angles`` in radians that take the first axis towards the second."""
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)
