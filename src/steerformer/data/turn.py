"""Turning images and volumes: a batch, each by a rotation of its own, or one scan with its labels, losing nothing."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from steerformer.fields import voxel_coordinates

_EDGE = 12  # voxels around a scan; what a spline makes of its end has faded after so many


def turn(
    x: Float[Tensor, "batch channels *space"], R: Float[Tensor, "batch dim dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *space"]:
    r"""Scalar fields turned about the center of the grid, $f_b(R_b^{-1} x)$: :meth:`FieldType.rotate` for many.

    ``mode`` is ``"bilinear"`` (in space trilinear) or ``"nearest"``; what comes from outside is zero.
    """
    size = x.shape[2:]
    sources = voxel_coordinates(size).to(x).flatten(0, -2) @ R.to(x)  # row vectors: R^-1 x
    return sample(x, sources.unflatten(1, size), mode=mode)


def turn_whole(
    x: Float[Tensor, "channels *space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> Float[Tensor, "channels *turned"]:
    """A scan turned about its center, on a grid of the same ``spacing`` that is large enough for nothing to be cut off.

    By cubic splines, which keep the fine detail that a linear interpolation blurs; what is outside the scan is zero.
    """
    from scipy.ndimage import map_coordinates

    places, inside = _whole_grid(x.shape[1:], R, spacing)
    where = (places + _EDGE).movedim(-1, 0).numpy()
    pads = [(_EDGE, _EDGE)] * (x.ndim - 1)
    turned = torch.empty(len(x), *inside.shape, dtype=x.dtype)
    for channel, target in zip(x.numpy(), turned.numpy(), strict=True):
        # Mirrored in the points at its ends, so that value and slope go on: a spline rings where a scan ends at once.
        extended = np.pad(channel, pads, mode="reflect", reflect_type="odd")
        map_coordinates(extended, where, output=target, order=3, mode="mirror")
    return turned.where(inside, 0)


def turn_labels(
    labels: Integer[Tensor, "*space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> Integer[Tensor, "*turned"]:
    """Labels on the grid of :func:`turn_whole`: of each voxel that of which the scan has most there; outside 0.

    Most by linear interpolation between voxels: the nearest alone would leave outlines ragged.
    """
    places, inside = _whole_grid(labels.shape, R, spacing)
    middle = torch.tensor([(n - 1) / 2 for n in labels.shape], dtype=places.dtype)
    last = torch.tensor(labels.shape) - 1
    places = (places.clamp_min(0).minimum(last) - middle).float()[None]
    turned, most = labels.new_zeros(inside.shape), torch.zeros(inside.shape)
    for label in labels.unique():
        share = sample((labels == label)[None, None].float(), places)[0, 0]
        turned, most = turned.where(share <= most, label), most.maximum(share)
    return turned.where(inside, 0)


def _whole_grid(
    shape: Sequence[int], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> tuple[Float[Tensor, "*turned dim"], Bool[Tensor, "*turned"]]:
    """Which place of a scan each voxel of the turned one shows, counted in voxels, and whether it lies in the scan."""
    steps, size = torch.tensor(spacing, dtype=torch.float64), torch.tensor(shape)
    extent = R.abs().double() @ (size * steps) / steps
    turned = [int(n) for n in (extent - 1e-6).ceil()]
    places = voxel_coordinates(turned, spacing) @ R.double() / steps + (size - 1) / 2
    return places, ((places > -0.5 - 1e-6) & (places < size - 0.5 + 1e-6)).all(dim=-1)


def sample(
    x: Float[Tensor, "batch channels *space"], places: Float[Tensor, "batch *target dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *target"]:
    """Values at ``places``, in voxels from the center of the grid along each axis; zero outside."""
    x = F.pad(x, [int(n == 1) for n in reversed(x.shape[2:]) for _ in (0, 1)])  # one voxel has no width to leave
    half = torch.tensor([(n - 1) / 2 for n in x.shape[2:]], dtype=x.dtype)
    grid = (places / half).flip(-1)  # grid_sample wants the last axis first
    return F.grid_sample(x, grid, mode=mode, align_corners=True)


def plane_rotations(angles: Float[Tensor, "batch"]) -> Float[Tensor, "batch 2 2"]:
    """Matrices of rotations by ``angles`` in radians that take the first axis towards the second."""
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)
