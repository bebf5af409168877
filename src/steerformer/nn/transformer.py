"""The transformer around attention: a pre-norm residual loop."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.activation import NormReLU
from steerformer.nn.attention import Attention
from steerformer.nn.dropout import FieldDropout
from steerformer.nn.linear import Linear
from steerformer.nn.norm import LayerNorm

_STEADY_DEPTH = 8


class MLP(nn.Module):
    r"""$f' = \sigma(f W_1)\, W_2$ at every position (paper, section 3.3), $\sigma$ a :class:`NormReLU`.

    Args:
        field_type: type of input and output.
        hidden: type in between; the paper's, twice the copies of every degree, if not given.
        bias: initial bias of the nonlinearity. The paper gives none; at 0 it would do nothing at first, and at -0.5
            it silences the shorter third of the vectors.
    """

    def __init__(self, field_type: FieldType, *, hidden: FieldType | None = None, bias: float = -0.5) -> None:
        super().__init__()
        require_field_type(field_type, "MLP")
        self.in_type = self.out_type = field_type
        self.hidden = hidden or FieldType(
            field_type.group, [2 * copies for copies in field_type.multiplicities], real=field_type.real
        )
        self.expand = Linear(field_type, self.hidden)
        self.nonlinearity = NormReLU(self.hidden, bias=bias)
        self.contract = Linear(self.hidden, field_type)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        out: Tensor = self.contract(self.nonlinearity(self.expand(x)))
        return out

    def extra_repr(self) -> str:
        return f"{self.in_type}, hidden={self.hidden}"


class TransformerBlock(nn.Module):
    r"""$f \leftarrow f + \mathrm{Attention}(\mathrm{LN}(f))$, then $f \leftarrow f + \mathrm{MLP}(\mathrm{LN}(f))$.

    Args:
        field_type: type of input and output, complex.
        num_heads: must divide the copies of every degree.
        hidden: type inside the MLP.
        dropout: probability to drop a copy of a branch's output.
        gain: factor of the branches' last weights at the start. The default lets eight blocks raise the variance of
            features of unit variance to two at most.
        attention: further options of :class:`Attention`, such as ``spacing``.
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        num_heads: int,
        hidden: FieldType | None = None,
        dropout: float = 0.0,
        gain: float = 1 / math.sqrt(2 * _STEADY_DEPTH),
        **attention: Any,
    ) -> None:
        super().__init__()
        require_field_type(field_type, "TransformerBlock")
        self.in_type = self.out_type = field_type
        self.attention_norm, self.mlp_norm = LayerNorm(field_type), LayerNorm(field_type)
        self.attention = Attention(field_type, num_heads=num_heads, **attention)
        self.mlp = MLP(field_type, hidden=hidden)
        self.dropout = FieldDropout(field_type, p=dropout) if dropout else nn.Identity()
        with torch.no_grad():
            for weight in (*self.attention.out.weights, *self.mlp.contract.weights):
                weight.mul_(gain)

    def forward(
        self, x: Float[Tensor, "batch channels *space"], mask: Bool[Tensor, "batch *space"] | None = None
    ) -> Float[Tensor, "batch channels *space"]:
        x = x + self.dropout(self.attention(self.attention_norm(x), mask))
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x

    def extra_repr(self) -> str:
        return str(self.in_type)


class Encoder(nn.Module):
    """``depth`` transformer blocks in a row; options as for :class:`TransformerBlock`.

    The deeper, the less each block adds at the start: features keep their size.
    """

    def __init__(self, field_type: FieldType, *, num_heads: int, depth: int = 1, **options: Any) -> None:
        super().__init__()
        require_field_type(field_type, "Encoder")
        if not is_integer(depth, least=1):
            raise ValueError(f"depth is an integer >= 1, got {depth!r}.")
        self.in_type = self.out_type = field_type
        options = {"gain": 1 / math.sqrt(2 * max(depth, _STEADY_DEPTH)), **options}
        self.blocks = nn.ModuleList(TransformerBlock(field_type, num_heads=num_heads, **options) for _ in range(depth))

    def forward(
        self, x: Float[Tensor, "batch channels *space"], mask: Bool[Tensor, "batch *space"] | None = None
    ) -> Float[Tensor, "batch channels *space"]:
        for block in self.blocks:
            x = block(x, mask)
        return x

    def extra_repr(self) -> str:
        return str(self.in_type)
