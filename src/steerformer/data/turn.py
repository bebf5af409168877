"""Turning a batch of images or volumes, each by a rotation of its own."""

from collections.abc import Sequence

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
    return sample(x, sources.unflatten(1, size), mode=mode)


def turn_whole(
    x: Float[Tensor, "batch channels *space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float], *, mode: str
) -> Float[Tensor, "batch channels *turned"]:
    """Like :func:`turn`, on a grid of the same ``spacing`` that is large enough for nothing to be cut off."""
    steps = torch.tensor(spacing, dtype=torch.float64)
    extent = R.abs().double() @ (torch.tensor(x.shape[2:]) * steps) / steps
    size = [int(n) for n in (extent - 1e-6).ceil()]
    sources = voxel_coordinates(size, spacing) @ R.double() / steps
    return sample(x, sources.to(x).expand(len(x), *sources.shape), mode=mode)


def sample(
    x: Float[Tensor, "batch channels *space"], places: Float[Tensor, "batch *target dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *target"]:
    """Values at ``places``, in voxels from the centre of the grid along each axis; zero outside."""
    x = F.pad(x, [int(n == 1) for n in reversed(x.shape[2:]) for _ in (0, 1)])  # one voxel has no width to leave
    half = torch.tensor([(n - 1) / 2 for n in x.shape[2:]], dtype=x.dtype)
    grid = (places / half).flip(-1)  # grid_sample wants the last axis first
    return F.grid_sample(x, grid, mode=mode, align_corners=True)


def plane_rotations(angles: Float[Tensor, "batch"]) -> Float[Tensor, "batch 2 2"]:
    """Matrices of rotations by ``angles`` in radians that take the first axis towards the second."""
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)
