"""Rotating data: a batch of images or volumes by one rotation each, or a whole scan with its labels."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from steerformer.data.config import AnyDataConfig
from steerformer.fields import sample_at, voxel_coordinates

_EDGE = 12  # voxels added around a scan; the boundary effect of a cubic spline has decayed after that many


def rotate_batch(
    x: Float[Tensor, "batch channels *space"], R: Float[Tensor, "batch dim dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *space"]:
    r"""Rotate scalar fields about the center of the grid, $f_b(R_b^{-1} x)$: :meth:`FieldType.rotate` for many.

    ``mode`` is ``"bilinear"`` (trilinear for volumes) or ``"nearest"``; values from outside the grid are zero.
    """
    size = x.shape[2:]
    sources = voxel_coordinates(size).to(x).flatten(0, -2) @ R.to(x)  # row vectors: R^-1 x
    return sample_at(x, sources.unflatten(1, size), mode=mode)


def rotate_scan(
    x: Float[Tensor, "channels *space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> Float[Tensor, "channels *rotated"]:
    """Rotate a scan about its center, on a grid of the same ``spacing`` that grows so that nothing is cut off.

    By cubic splines, which keep fine detail that linear interpolation blurs; outside the scan values are zero.
    """
    from scipy.ndimage import map_coordinates

    places, inside = _rotated_grid(x.shape[1:], R, spacing)
    where = (places + _EDGE).movedim(-1, 0).numpy()
    pads = [(_EDGE, _EDGE)] * (x.ndim - 1)
    rotated = torch.empty(len(x), *inside.shape, dtype=x.dtype)
    for channel, target in zip(x.numpy(), rotated.numpy(), strict=True):
        # odd reflection continues value and slope: a spline rings where a scan ends abruptly
        extended = np.pad(channel, pads, mode="reflect", reflect_type="odd")
        map_coordinates(extended, where, output=target, order=3, mode="mirror")
    return rotated.where(inside, 0)


def rotate_labels(
    labels: Integer[Tensor, "*space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> Integer[Tensor, "*rotated"]:
    """Rotate labels onto the grid of :func:`rotate_scan`: the label with the largest share of each voxel; 0 outside.

    Shares are interpolated linearly: nearest neighbors would leave outlines ragged.
    """
    places, inside = _rotated_grid(labels.shape, R, spacing)
    center = torch.tensor([(n - 1) / 2 for n in labels.shape], dtype=places.dtype)
    last = torch.tensor(labels.shape) - 1
    places = (places.clamp_min(0).minimum(last) - center).float()[None]
    rotated, most = labels.new_zeros(inside.shape), torch.zeros(inside.shape)
    for label in labels.unique():
        share = sample_at((labels == label)[None, None].float(), places)[0, 0]
        rotated, most = rotated.where(share <= most, label), most.maximum(share)
    return rotated.where(inside, 0)


def _rotated_grid(
    shape: Sequence[int], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> tuple[Float[Tensor, "*rotated dim"], Bool[Tensor, "*rotated"]]:
    """Voxel coordinates in the scan of each voxel of the rotated grid, and whether they lie inside the scan."""
    steps, size = torch.tensor(spacing, dtype=torch.float64), torch.tensor(shape)
    extent = R.abs().double() @ (size * steps) / steps
    rotated = [int(n) for n in (extent - 1e-6).ceil()]
    places = voxel_coordinates(rotated, spacing) @ R.double() / steps + (size - 1) / 2
    return places, ((places > -0.5 - 1e-6) & (places < size - 0.5 + 1e-6)).all(dim=-1)


def plane_rotations(angles: Float[Tensor, "batch"]) -> Float[Tensor, "batch 2 2"]:
    """Matrices of rotations by ``angles`` in radians, from the first axis towards the second."""
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)


def interpolation_mode(config: AnyDataConfig) -> str:
    """How samples are rotated: binary volumes by nearest neighbors, as in the paper, all others linearly."""
    is_binary = getattr(config, "occupancy", None) == "binary"
    return "nearest" if is_binary else "bilinear"
