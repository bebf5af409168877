"""Equivariant transformer: MLP, pre-norm residual block and encoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.activation import NormReLU
from steerformer.nn.attention import Attention
from steerformer.nn.dropout import FieldDropout
from steerformer.nn.linear import Linear
from steerformer.nn.masks import finite_where_invalid
from steerformer.nn.norm import LayerNorm

Nonlinearity = Callable[[FieldType], nn.Module]
_STEADY_DEPTH = 8


def shrink(field_type: FieldType) -> NormReLU:
    """The paper's nonlinearity of MLPs, with the initial bias of ``docs/theory.md``; at bias 0 it is the identity."""
    return NormReLU(field_type, bias=-0.5)


class MLP(nn.Module):
    r"""Equivariant multilayer perceptron: two linear layers with a nonlinearity between them, at every position.

    $$f'(x) = \sigma(f(x) W_1)\, W_2$$

    (paper, section 3.3), with :class:`Linear` layers and a pointwise nonlinearity $\sigma$, the paper's
    :class:`NormReLU` by default; all three commute with every rotation, so
    $\mathrm{MLP}(\rho(R) f) = \rho(R)\, \mathrm{MLP}(f)$.

    Args:
        field_type: type of input and output.
        hidden: type between the linear layers; by default the paper's, twice the copies of every degree.
        nonlinearity: makes the nonlinearity of a field type, such as :class:`FourierReLU`, which mixes degrees
            (``docs/any_angle.md`` compares them).

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.MLP(features)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(
        self, field_type: FieldType, *, hidden: FieldType | None = None, nonlinearity: Nonlinearity = shrink
    ) -> None:
        super().__init__()
        require_field_type(field_type, "MLP")
        self.in_type = self.out_type = field_type
        self.hidden = hidden or FieldType(
            field_type.group, [2 * copies for copies in field_type.multiplicities], real=field_type.real
        )
        self.expand = Linear(field_type, self.hidden)
        self.nonlinearity = nonlinearity(self.hidden)
        self.contract = Linear(self.hidden, field_type)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Apply the perceptron to a field of type ``in_type``."""
        out: Tensor = self.contract(self.nonlinearity(self.expand(x)))
        return out

    def extra_repr(self) -> str:
        return f"{self.in_type}, hidden={self.hidden}"


class TransformerBlock(nn.Module):
    r"""Equivariant pre-norm transformer block: self-attention and MLP with residual connections (paper, fig. 1).

    $$f' = f + \mathrm{Attention}(\mathrm{LN}(f)), \qquad f'' = f' + \mathrm{MLP}(\mathrm{LN}(f'))$$

    The block commutes with rotations as its layers do: exactly for those of the grid, approximately at other angles.
    :class:`Attention` dominates its cost on large grids.

    Args:
        field_type: type of input and output.
        num_heads: number of heads; must divide the copies of every degree.
        hidden: type inside the :class:`MLP`.
        nonlinearity: makes the nonlinearity of the :class:`MLP`.
        dropout: probability of :class:`FieldDropout` on the output of both branches.
        gain: factor of both branches' last weights at initialization; the default suits eight blocks
            (``docs/theory.md``).
        norm_floor: ``floor`` of both :class:`LayerNorm`\ s.
        attention: further options of :class:`Attention`, such as ``spacing``.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Mask: $(N, *space)$, boolean.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> block = sf.nn.TransformerBlock(features, num_heads=4, dropout=0.1)
    >>> block(features.randn(2, 8)).shape
    torch.Size([2, 24, 8, 8])
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        num_heads: int,
        hidden: FieldType | None = None,
        nonlinearity: Nonlinearity = shrink,
        dropout: float = 0.0,
        gain: float = 1 / math.sqrt(2 * _STEADY_DEPTH),
        norm_floor: float = 0.0,
        **attention: Any,
    ) -> None:
        super().__init__()
        require_field_type(field_type, "TransformerBlock")
        self.in_type = self.out_type = field_type
        self.attention_norm, self.mlp_norm = (LayerNorm(field_type, floor=norm_floor) for _ in range(2))
        self.attention = Attention(field_type, num_heads=num_heads, **attention)
        self.mlp = MLP(field_type, hidden=hidden, nonlinearity=nonlinearity)
        self.dropout = FieldDropout(field_type, p=dropout) if dropout else nn.Identity()
        with torch.no_grad():
            for weight in (*self.attention.out.weights, *self.mlp.contract.weights):
                weight.mul_(gain)

    def forward(
        self, x: Float[Tensor, "batch channels *space"], mask: Bool[Tensor, "batch *space"] | None = None
    ) -> Float[Tensor, "batch channels *space"]:
        """Apply the block.

        Args:
            x: field of type ``in_type``.
            mask: padding mask, ``True`` for valid voxels; see :meth:`Attention.forward`.
        """
        if mask is not None:
            x = finite_where_invalid(x, mask)
        x = x + self.dropout(self.attention(self.attention_norm(x), mask))
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x

    def extra_repr(self) -> str:
        return str(self.in_type)


class Encoder(nn.Module):
    r"""Equivariant transformer encoder: a stack of transformer blocks (paper, fig. 1).

    $$f_m = \mathrm{Block}_m(f_{m-1}), \qquad m = 1, \dots, depth$$

    The stack commutes with rotations as its blocks do: exactly for those of the grid, approximately at other angles.
    Deeper stacks start with a smaller gain per block, which bounds the variance of features (``docs/theory.md``).

    Args:
        field_type: type of input and output.
        num_heads: number of heads; must divide the copies of every degree.
        depth: number of blocks.
        options: further options of :class:`TransformerBlock`, such as ``dropout``.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Mask: $(N, *space)$, boolean.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> encoder = sf.nn.Encoder(features, num_heads=2, depth=2)
    >>> encoder(features.randn(2, 8)).shape
    torch.Size([2, 24, 8, 8])
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
        """Apply all blocks in order.

        Args:
            x: field of type ``in_type``.
            mask: padding mask, ``True`` for valid voxels; see :meth:`Attention.forward`.
        """
        for block in self.blocks:
            x = block(x, mask)
        return x

    def extra_repr(self) -> str:
        return str(self.in_type)
