"""Equivariant transformer decoder: blocks with cross-attention to a context."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.attention import Attention
from steerformer.nn.dropout import FieldDropout
from steerformer.nn.masks import finite_where_invalid
from steerformer.nn.norm import LayerNorm
from steerformer.nn.transformer import MLP, Nonlinearity, shrink

_STEADY_DEPTH = 8
_OF_CONTEXT = ("context_spacing",)
"""Options of cross-attention that self-attention does not have."""


class DecoderBlock(nn.Module):
    r"""Equivariant pre-norm decoder block: self-attention, cross-attention to a context and MLP, each with a residual.

    $$f' = f + \mathrm{Attention}(\mathrm{LN}(f)), \quad f'' = f' + \mathrm{Attention}(\mathrm{LN}(f'), \mathrm{LN}(g)),
      \quad f''' = f'' + \mathrm{MLP}(\mathrm{LN}(f''))$$

    as torch's ``TransformerDecoderLayer(norm_first=True)``, where the context $g$ is the memory. The block commutes
    with rotations of both fields as its layers do: exactly for those of the grid, approximately at other angles.

    Args:
        query_type: type of input and output.
        key_type: type of the context.
        num_heads: number of heads; must divide the copies of every degree of ``query_type``.
        self_attention: ``False`` leaves self-attention out.
        hidden: type inside the :class:`MLP`.
        nonlinearity: makes the nonlinearity of the :class:`MLP`.
        dropout: probability of :class:`FieldDropout` on the output of all branches.
        gain: factor of the last weights of all branches at initialization; the default suits eight blocks.
        norm_floor: ``floor`` of all :class:`LayerNorm`\ s.
        attention: further options of both :class:`Attention`\ s, such as ``radius``; ``context_spacing`` is for
            cross-attention alone.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``query_type.channels`` and two spatial axes for images,
          three for volumes.
        - Context: $(N, C_{key}, *space_{key})$ with $C_{key}$ = ``key_type.channels``, of any size.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features, context = sf.FieldType(sf.SO2, (8, 4)), sf.FieldType(sf.SO2, (4, 2, 1))
    >>> block = sf.nn.DecoderBlock(features, context, num_heads=4, radius=3.0)
    >>> block(features.randn(2, 8), context.randn(2, 7)).shape
    torch.Size([2, 24, 8, 8])
    """

    def __init__(
        self,
        query_type: FieldType,
        key_type: FieldType,
        *,
        num_heads: int,
        self_attention: bool = True,
        hidden: FieldType | None = None,
        nonlinearity: Nonlinearity = shrink,
        dropout: float = 0.0,
        gain: float = 1 / math.sqrt(3 * _STEADY_DEPTH),
        norm_floor: float = 0.0,
        **attention: Any,
    ) -> None:
        super().__init__()
        require_field_type(query_type, "DecoderBlock")
        require_field_type(key_type, "DecoderBlock")
        self.in_type = self.out_type = query_type
        self.context_type = key_type
        self.self_attention_norm = self.self_attention = None
        if self_attention:
            shared = {name: value for name, value in attention.items() if name not in _OF_CONTEXT}
            self.self_attention_norm = LayerNorm(query_type, floor=norm_floor)
            self.self_attention = Attention(query_type, num_heads=num_heads, **shared)
        self.attention_norm, self.mlp_norm = (LayerNorm(query_type, floor=norm_floor) for _ in range(2))
        self.context_norm = LayerNorm(key_type, floor=norm_floor)
        self.attention = Attention(query_type, key_type, num_heads=num_heads, **attention)
        self.mlp = MLP(query_type, hidden=hidden, nonlinearity=nonlinearity)
        self.dropout = FieldDropout(query_type, p=dropout) if dropout else nn.Identity()
        last = [self.attention.out, self.mlp.contract, *([self.self_attention.out] if self.self_attention else [])]
        with torch.no_grad():
            for weight in (weight for linear in last for weight in linear.weights):
                weight.mul_(gain)

    def forward(
        self,
        x: Float[Tensor, "batch channels *space"],
        context: Float[Tensor, "batch others *keys"],
        mask: Bool[Tensor, "batch *space"] | None = None,
        *,
        context_mask: Bool[Tensor, "batch *keys"] | None = None,
    ) -> Float[Tensor, "batch channels *space"]:
        """Apply the block.

        Args:
            x: field of type ``in_type``.
            context: field of type ``context_type``.
            mask: padding mask of ``x``, ``True`` for valid voxels; see :meth:`Attention.forward`.
            context_mask: padding mask of the context.
        """
        if mask is not None:
            x = finite_where_invalid(x, mask)
        if context_mask is not None:
            context = finite_where_invalid(context, context_mask)
        if self.self_attention is not None and self.self_attention_norm is not None:
            x = x + self.dropout(self.self_attention(self.self_attention_norm(x), mask=mask))
        attended = self.attention(self.attention_norm(x), self.context_norm(context), context_mask)
        x = x + self.dropout(attended)
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x

    def extra_repr(self) -> str:
        return f"{self.in_type}, context={self.context_type}"


class Decoder(nn.Module):
    r"""Equivariant transformer decoder: a stack of decoder blocks with one context.

    $$f_m = \mathrm{Block}_m(f_{m-1}, g), \qquad m = 1, \dots, depth$$

    The stack commutes with rotations of both fields as its blocks do: exactly for those of the grid, approximately at
    other angles.

    Args:
        query_type: type of input and output.
        key_type: type of the context.
        num_heads: number of heads; must divide the copies of every degree of ``query_type``.
        depth: number of blocks.
        options: further options of :class:`DecoderBlock`, such as ``dropout``.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``query_type.channels`` and two spatial axes for images,
          three for volumes.
        - Context: $(N, C_{key}, *space_{key})$ with $C_{key}$ = ``key_type.channels``, of any size.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features, image = sf.FieldType(sf.SO2, (8, 4)), sf.FieldType.image(sf.SO2, 1)
    >>> decoder = sf.nn.Decoder(features, image, num_heads=2, depth=2)
    >>> decoder(features.randn(2, 8), image.randn(2, 12)).shape
    torch.Size([2, 24, 8, 8])
    """

    def __init__(
        self, query_type: FieldType, key_type: FieldType, *, num_heads: int, depth: int = 1, **options: Any
    ) -> None:
        super().__init__()
        if not is_integer(depth, least=1):
            raise ValueError(f"depth is an integer >= 1, got {depth!r}.")
        options = {"gain": 1 / math.sqrt(3 * max(depth, _STEADY_DEPTH)), **options}
        self.blocks = nn.ModuleList(
            DecoderBlock(query_type, key_type, num_heads=num_heads, **options) for _ in range(depth)
        )
        self.in_type = self.out_type = query_type
        self.context_type = key_type

    def forward(
        self,
        x: Float[Tensor, "batch channels *space"],
        context: Float[Tensor, "batch others *keys"],
        mask: Bool[Tensor, "batch *space"] | None = None,
        *,
        context_mask: Bool[Tensor, "batch *keys"] | None = None,
    ) -> Float[Tensor, "batch channels *space"]:
        """Apply all blocks in order.

        Args:
            x: field of type ``in_type``.
            context: field of type ``context_type``.
            mask: padding mask of ``x``, ``True`` for valid voxels; see :meth:`Attention.forward`.
            context_mask: padding mask of the context.
        """
        for block in self.blocks:
            x = block(x, context, mask, context_mask=context_mask)
        return x

    def extra_repr(self) -> str:
        return f"{self.in_type}, context={self.context_type}"
