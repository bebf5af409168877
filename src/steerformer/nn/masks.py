"""Padding masks: what invalid voxels hold does not matter."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def finite_where_invalid(
    x: Float[Tensor, "batch channels *space"], mask: Bool[Tensor, "batch *space"]
) -> Float[Tensor, "batch channels *space"]:
    """Zeros at invalid voxels with a channel that is not finite; gradients of the weights sum over all voxels."""
    expected = (x.shape[0], *x.shape[2:])
    if mask.dtype != torch.bool or mask.shape != expected:
        raise ValueError(
            f"a mask is boolean, True for valid voxels, of shape (batch, *space) = {tuple(expected)}, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return x.masked_fill(~(mask | x.isfinite().all(dim=1))[:, None], 0)
