"""Voxelization of point clouds."""

import torch
from jaxtyping import Float
from torch import Tensor

_REACH = 2
"""Voxels to each side of a point that it contributes to; beyond, a Gaussian of width 0.7 is below 1/50."""


def center_in_unit_sphere(
    points: Float[Tensor, "batch point 3"], *, steps: int = 100
) -> Float[Tensor, "batch point 3"]:
    """Translate and scale clouds so that the smallest enclosing sphere of each is the unit sphere.

    The center starts at the mean and moves towards the farthest point in ever shorter steps (Badoiu and Clarkson). It
    is equivariant to rotations, unlike the center of a bounding box. Scaling by the farthest point keeps all points
    inside even before convergence.
    """
    center = points.mean(dim=1, keepdim=True)
    for step in range(1, steps + 1):
        farthest = (points - center).square().sum(dim=2).argmax(dim=1)
        center = center + (points[torch.arange(len(points)), farthest][:, None] - center) / (step + 1)
    moved = points - center
    radius = moved.norm(dim=2).amax(dim=1)[:, None, None]
    return moved / radius.clamp_min(1e-12)


def voxelize(
    points: Float[Tensor, "batch point 3"], size: int, *, fill: float = 1.0, width: float | None = None
) -> Float[Tensor, "batch 1 size size size"]:
    r"""Voxelize clouds in the unit sphere on a cubic grid; coordinates run along the spatial axes in their order.

    Without ``width`` a voxel is 1 if a point lies in it, else 0. With it, a voxel is $e^{-d^2/2w^2}$, where $d$ is the
    distance of its center from the nearest point, in voxels; more than two voxels from all points it is 0.

    Args:
        points: coordinates in the unit sphere.
        size: voxels along each side.
        fill: diameter of the unit sphere as a fraction of the grid's side, at most 1.
        width: $w$, in voxels.
    """
    place = points * (fill * size / 2) + size / 2  # voxel i holds i to i + 1
    home = place.floor().clamp(0, size - 1)
    reach = 0 if width is None else _REACH
    voxel = home.unsqueeze(-1) + torch.arange(-reach, reach + 1)  # batch, point, axis, neighbor
    value = torch.ones_like(voxel)
    if width is not None:  # a Gaussian is a product over the axes
        value = (voxel + 0.5 - place.unsqueeze(-1)).square().div(-2 * width**2).exp()
    value = value * ((voxel >= 0) & (voxel < size))
    index = voxel.clamp(0, size - 1).long() * torch.tensor([size**2, size, 1]).unsqueeze(-1)
    (x, y, z), (i, j, k) = value.unbind(2), index.unbind(2)
    values = x[..., :, None, None] * y[..., None, :, None] * z[..., None, None, :]
    places = i[..., :, None, None] + j[..., None, :, None] + k[..., None, None, :]
    grid = torch.zeros(len(points), size**3, dtype=points.dtype)
    grid.scatter_reduce_(1, places.flatten(1), values.flatten(1), "amax")
    return grid.view(len(points), 1, size, size, size)
