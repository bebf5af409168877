"""Equivariant dropout."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.ops import scale_copies


class FieldDropout(nn.Module):
    r"""Equivariant dropout: zero whole irrep copies with probability ``p`` during training.

    $$f_c \mapsto \frac{m_c}{1 - p}\, f_c, \qquad m_c \sim \mathrm{Bernoulli}(1 - p)$$

    Each sample draws one $m_c$ per copy $c$, for all orders, both parts and all positions. A scalar factor per copy
    commutes with every rotation. In eval mode the layer is the identity.

    Args:
        field_type: type of input and output.
        p: probability to zero a copy, at least 0 and below 1.

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> dropout = sf.nn.FieldDropout(features, p=0.2)
    >>> dropout(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(self, field_type: FieldType, *, p: float = 0.5) -> None:
        super().__init__()
        require_field_type(field_type, "FieldDropout")
        if not 0 <= as_number(p) < 1:
            raise ValueError(f"the probability of dropout is at least 0 and below 1, got {p!r}.")
        self.in_type = self.out_type = field_type
        self.p = p

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Zero random copies of a field of type ``in_type`` in training mode."""
        self.in_type.require_channels(x)
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape[0], self.in_type.copies, device=x.device) >= self.p
        factors = kept.to(x.dtype) / (1 - self.p)
        return scale_copies(self.in_type, x, factors.view(*factors.shape, *(1 for _ in x.shape[2:])))

    def extra_repr(self) -> str:
        return f"{self.in_type}, p={self.p}"
