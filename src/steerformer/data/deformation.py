"""Random deformations of images and volumes: linear maps, shifts and elastic displacements."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import sample_at, voxel_coordinates

_STRETCH = 0.07
"""Strength of the linear map: scaling, shear and a small rotation."""
_SHIFT = 0.015
"""Standard deviation of shifts, as a fraction of the grid's side."""
_ELASTIC = 0.01
"""Standard deviation of displacements at the control points, as a fraction of the grid's side."""
_CONTROL_POINTS = 5
"""Control points along each axis."""


def deform(
    x: Float[Tensor, "channels *space"], R: Float[Tensor, "dim dim"], random: torch.Generator
) -> Float[Tensor, "channels *space"]:
    r"""Rotate, scale, shear, shift and displace an image or volume elastically; zeros outside.

    $$g(x) = f(R^{-1} (A x + t + u(x)))$$

    $A$ is the exponential of a Gaussian matrix; $u$ interpolates Gaussian displacements of 5 control points along each
    axis. Interpolated once, images by cubic convolution, which blurs less than bilinear interpolation and overshoots a
    little at edges.
    """
    space = x.shape[1:]
    dim, side = len(space), min(space)
    stretch = _STRETCH / math.sqrt(2) * torch.randn(dim, dim, generator=random)
    shift = _SHIFT * side * torch.randn(dim, generator=random)
    control = _ELASTIC * side * torch.randn(1, dim, *(_CONTROL_POINTS,) * dim, generator=random)
    mode = {2: "bicubic", 3: "trilinear"}[dim]
    displacement = F.interpolate(control, size=space, mode=mode, align_corners=True)[0].movedim(0, -1)
    places = voxel_coordinates(space).to(x) @ torch.linalg.matrix_exp(stretch).T + shift + displacement
    sources = places @ R.to(x)  # row vectors: R^-1 x
    return sample_at(x[None], sources[None], mode="bicubic" if dim == 2 else "bilinear")[0]
