"""Grids of voxels: coordinates, permutations of axes, and interpolation."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def voxel_coordinates(size: Sequence[int], spacing: Sequence[float] | None = None) -> Float[Tensor, "*space dim"]:
    """Float64 coordinates of all voxels in tensor-axis order, with the origin at the center of the grid."""
    steps = [1.0] * len(size) if spacing is None else spacing
    axes = [(torch.arange(n, dtype=torch.float64) - (n - 1) / 2) * step for n, step in zip(size, steps, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def permute_axes(x: Tensor, grid: Tensor) -> Tensor:
    """Permute the voxels of ``(batch, channels, *space)`` by a signed permutation matrix ``grid`` of the axes."""
    source = grid.abs().argmax(dim=1).tolist()
    x = x.permute(0, 1, *(2 + axis for axis in source))
    return x.flip([2 + i for i, axis in enumerate(source) if grid[i, axis] < 0])


def sample_at(
    x: Float[Tensor, "batch channels *space"], points: Float[Tensor, "batch *target dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *target"]:
    """Values of a map at ``points``, in voxels from the center of the grid along each axis; zero outside.

    ``mode`` is ``"bilinear"`` (trilinear for volumes), ``"nearest"``, or for images ``"bicubic"``.
    """
    x = F.pad(x, [int(n == 1) for n in reversed(x.shape[2:]) for _ in (0, 1)])  # one voxel has no extent to divide by
    half = torch.tensor([(n - 1) / 2 for n in x.shape[2:]], dtype=x.dtype, device=x.device)
    grid = (points / half).flip(-1)  # grid_sample takes the last axis first
    return F.grid_sample(x, grid, mode=mode, align_corners=True)


def interpolate_rotated(x: Tensor, R: Tensor, mode: str) -> Tensor:
    """Interpolate ``(batch, channels, *space)`` at the places that ``R`` moves to each voxel; zero outside."""
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"rotate interpolates 'bilinear' or 'nearest', got {mode!r}.")
    sources = voxel_coordinates(x.shape[2:]).to(x) @ R  # row vectors: R^-1 x
    return sample_at(x, sources.expand(x.shape[0], *sources.shape), mode=mode)
