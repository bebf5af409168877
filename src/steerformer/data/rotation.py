"""Rotating data: a batch of images or volumes by one rotation each, or a whole scan with its labels."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from steerformer.data.affine import AffineMap
from steerformer.data.config import AnyDataConfig
from steerformer.fields import sample_at, voxel_coordinates


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

    By cubic splines; outside the scan values are zero.
    """
    return _rotated_grid(x.shape[1:], R, spacing).values(x)


def rotate_labels(
    labels: Integer[Tensor, "*space"], R: Float[Tensor, "dim dim"], spacing: Sequence[float]
) -> Integer[Tensor, "*rotated"]:
    """Rotate labels onto the grid of :func:`rotate_scan`: the label with the largest share of each voxel; 0 outside."""
    return _rotated_grid(labels.shape, R, spacing).labels(labels)


def _rotated_grid(shape: Sequence[int], R: Float[Tensor, "dim dim"], spacing: Sequence[float]) -> AffineMap:
    steps, size = torch.tensor(spacing, dtype=torch.float64), torch.tensor(shape)
    extent = R.abs().double() @ (size * steps) / steps
    rotated = [int(n) for n in (extent - 1e-6).ceil()]
    return AffineMap.of_rotation(R, spacing, (size - 1) / 2, rotated)


def plane_rotations(angles: Float[Tensor, "batch"]) -> Float[Tensor, "batch 2 2"]:
    """Matrices of rotations by ``angles`` in radians, from the first axis towards the second."""
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)


def interpolation_mode(config: AnyDataConfig) -> str:
    """How samples are rotated: binary volumes by nearest neighbors, as in the paper, all others linearly."""
    is_binary = getattr(config, "occupancy", None) == "binary"
    return "nearest" if is_binary else "bilinear"
