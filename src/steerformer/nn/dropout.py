"""Dropout that commutes with rotations."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.ops import scale_copies


class FieldDropout(nn.Module):
    """In training, zero whole irrep copies (all orders, both parts, all positions) with probability ``p``."""

    def __init__(self, field_type: FieldType, *, p: float = 0.5) -> None:
        super().__init__()
        require_field_type(field_type, "FieldDropout")
        if not 0 <= as_number(p) < 1:
            raise ValueError(f"the probability of dropout is at least 0 and below 1, got {p!r}.")
        self.in_type = self.out_type = field_type
        self.p = p

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        self.in_type.require_channels(x)
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape[0], self.in_type.copies, device=x.device) >= self.p
        factors = kept.to(x.dtype) / (1 - self.p)
        return scale_copies(self.in_type, x, factors.view(*factors.shape, *(1 for _ in x.shape[2:])))

    def extra_repr(self) -> str:
        return f"{self.in_type}, p={self.p}"
