"""Bias of the scalars: a constant added to degree 0, which is the only one that rotations leave as it is."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType


def scalar_bias(out_type: FieldType, layer: str) -> nn.Parameter:
    """A bias ``(part, copy)`` for the copies of degree 0, initially zero."""
    if not out_type.multiplicity(0):
        raise ValueError(f"the bias of {layer} is a constant of degree 0, which {out_type!r} does not have.")
    return nn.Parameter(torch.zeros(out_type.parts, out_type.multiplicity(0)))


def add_bias(
    y: Float[Tensor, "batch channels *space"], bias: Float[Tensor, "part copy"], out_type: FieldType
) -> Float[Tensor, "batch channels *space"]:
    """Add the bias to the scalars, the first channels of every part."""
    others = out_type.channels // out_type.parts - bias.shape[1]
    constant = F.pad(bias, (0, others)).flatten()
    return y + constant.to(y.dtype).view(-1, *(1 for _ in y.shape[2:]))
