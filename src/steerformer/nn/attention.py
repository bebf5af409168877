"""Equivariant multi-head self-attention."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.attention_core import (
    Implementation,
    attend,
    attention_weights,
    require_implementation,
    require_small_map,
)
from steerformer.nn.linear import Linear
from steerformer.nn.ops import require_space
from steerformer.nn.position import PositionalEncoding, Radial

Scale = Literal["paper", "total"]


class Attention(ExactConstants):
    r"""Equivariant multi-head self-attention over all voxels (paper, section 3.1, eqs. 10-15).

    $$q_i = f(x_i) W_Q, \quad k_{ij} = f(x_j) W_K + P(x_i - x_j), \quad v_{ij} = f(x_j) W_V + P'(x_i - x_j)$$
    $$s_{ij} = \sum_\rho q_{i\rho}^\dagger k_{ij\rho} / \sqrt{d_\rho}, \quad
      a_{ij} = \mathrm{softmax}_j |s_{ij}|, \quad f'(x_i) = \sum_j a_{ij} v_{ij}\, W_O$$

    $P$ and $P'$ are two :class:`PositionalEncoding`\ s. Each head takes an equal share of the copies of every degree.
    Attention commutes with rotations, $\mathrm{Attention}(Rf) = R\,\mathrm{Attention}(f)$ (theorem 1): exactly for the
    rotations of the grid, approximately at other angles. Parameters do not depend on the size of the grid. Time grows
    with the square of the number of voxels, memory linearly. Initialization: ``docs/theory.md``.

    Args:
        field_type: type of input and output, complex.
        num_heads: number of heads; must divide the copies of every degree.
        scale: ``"paper"`` divides the scores of degree $\rho$ by $\sqrt{d_\rho}$, its copies in a head; ``"total"``
            divides all scores by the square root of a head's components (orders times copies).
        positional: add positional encodings; without them attention ignores where voxels are.
        radial: radial profile of the encodings, ``"soft"``, ``"paper"`` or a function; see :class:`PositionalEncoding`.
        spacing: voxel spacing along each axis; 1 if not given.
        implementation: ``"dense"``, ``"blockwise"`` or ``"auto"``; see :func:`~steerformer.nn.attention_core.attend`.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Mask: $(N, *space)$, boolean.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4, 2))
    >>> attention = sf.nn.Attention(features, num_heads=2)
    >>> attention(features.randn(2, 8)).shape
    torch.Size([2, 28, 8, 8])
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        num_heads: int,
        scale: Scale = "paper",
        positional: bool = True,
        radial: Radial = "soft",
        spacing: Sequence[float] | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__()
        require_field_type(field_type, "Attention")
        _require_heads(field_type, num_heads)
        if scale not in ("paper", "total"):
            raise ValueError(f"scale is 'paper' or 'total', got {scale!r}.")
        require_implementation(implementation)
        self.in_type = self.out_type = field_type
        self.num_heads, self.scale, self.implementation = int(num_heads), scale, implementation
        self.query, self.key, self.value = (Linear(field_type, field_type) for _ in range(3))
        self.out = Linear(field_type, field_type)
        self.key_position: PositionalEncoding | None = None
        self.value_position: PositionalEncoding | None = None
        if positional:
            self.key_position = PositionalEncoding(field_type, radial=radial, spacing=spacing)
            self.value_position = PositionalEncoding(field_type, radial=radial, spacing=spacing)
        factors: list[float] = []  # one for each component of a head
        for degree, scale_of_degree in zip(field_type.degrees, self._scales(), strict=True):
            size = field_type.group.irrep_dim(degree) * field_type.multiplicity(degree)
            factors += [scale_of_degree] * (size // self.num_heads)
        self.register_constant("_factors", torch.tensor(factors * 2, dtype=torch.float64, device="cpu")[:, None])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"."""
        for linear in (self.query, self.key, self.value, self.out):
            linear.reset_parameters()
        sizes = [self.in_type.group.irrep_dim(d) * self.in_type.multiplicity(d) for d in self.in_type.degrees]
        # the product of two complex numbers of variance 2 has variance 4
        variance = 4 * sum(size * factor**2 for size, factor in zip(sizes, self._scales(), strict=True))
        gain = (variance / self.num_heads) ** -0.25
        with torch.no_grad():
            for weight in (*self.query.weights, *self.key.weights):
                weight.mul_(gain)
            if self.key_position is not None and self.value_position is not None:
                self.key_position.weight.normal_(std=gain)
                self.value_position.weight.normal_()

    def forward(
        self,
        x: Float[Tensor, "batch channels *space"],
        mask: Bool[Tensor, "batch *space"] | None = None,
        *,
        return_weights: bool | Literal["max"] = False,
    ) -> Float[Tensor, "batch channels *space"] | tuple[Tensor, Tensor]:
        """Attend to all voxels, or to the valid ones.

        Args:
            x: field of type ``in_type``.
            mask: padding mask, ``True`` for valid voxels. Only these are attended to, but all voxels get an output.
            return_weights: ``True`` also returns the attention weights, ``(batch, head, query, key)``, on grids of at
                most 4096 voxels; ``"max"`` the largest weight of each query, ``(batch, head, *space)``, on any grid.
        """
        require_space(self.in_type, x, "Attention")
        space = x.shape[2:]
        if return_weights not in (True, False, "max"):
            raise ValueError(f"return_weights is True, False or 'max', got {return_weights!r}.")
        if return_weights is True:
            require_small_map(math.prod(space))
        if mask is not None:
            mask = _checked_mask(mask, x).flatten(1)
        tokens = x.flatten(2)
        q, k, v = (self._split_heads(layer(tokens)) for layer in (self.query, self.key, self.value))
        q = q * self.constant("_factors").to(q.dtype)
        key_map, value_map, table = self._positions(x)
        mixed = attend(q, k, v, key_map, value_map, table, mask=mask, implementation=self.implementation)
        out = self.out(self._merge_heads(mixed)).unflatten(2, space)
        if return_weights is False:
            return out
        weights = attention_weights(q, k, key_map, table, mask=mask, only_largest=return_weights == "max")
        return out, weights.unflatten(2, space) if return_weights == "max" else weights

    def extra_repr(self) -> str:
        return f"{self.in_type}, num_heads={self.num_heads}, scale={self.scale}, implementation={self.implementation}"

    def _scales(self) -> list[float]:
        """Factors of the scores of each degree."""
        copies = [self.in_type.multiplicity(degree) / self.num_heads for degree in self.in_type.degrees]
        if self.scale == "paper":
            return [1 / math.sqrt(count) for count in copies]
        orders = [self.in_type.group.irrep_dim(degree) for degree in self.in_type.degrees]
        total = sum(order * count for order, count in zip(orders, copies, strict=True))
        return [1 / math.sqrt(total)] * len(copies)

    def _positions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Matrices of both encodings, split into heads, and the table of offsets; without encodings they are empty."""
        if self.key_position is None or self.value_position is None:
            components = self.in_type.channels // self.num_heads
            empty = x.new_zeros(self.num_heads, components, 0)
            return empty, empty, x.new_zeros(*(2 * n - 1 for n in x.shape[2:]), 0)
        self.key_position.require_same_table(self.value_position)
        maps = [self._split_heads(position.matrix()[None])[0] for position in (self.key_position, self.value_position)]
        return maps[0], maps[1], self.key_position.table(tuple(x.shape[2:]))

    def _split_heads(self, x: Float[Tensor, "batch channels column"]) -> Float[Tensor, "batch head component column"]:
        """Split channels into heads; components are ordered as the channels of a field with a head's copies."""
        pieces = (piece.unflatten(3, (self.num_heads, -1)) for piece in self.in_type.split(x))
        by_head = [piece.movedim(3, 1).flatten(3, 4) for piece in pieces]
        return torch.cat(by_head, dim=3).flatten(2, 3)

    def _merge_heads(self, x: Float[Tensor, "batch head component column"]) -> Float[Tensor, "batch channels column"]:
        """Inverse of :meth:`_split_heads`."""
        shapes = [
            (self.in_type.group.irrep_dim(degree), self.in_type.multiplicity(degree) // self.num_heads)
            for degree in self.in_type.degrees
        ]
        pieces = x.unflatten(2, (2, -1)).split([orders * copies for orders, copies in shapes], dim=3)
        return self.in_type.pack(
            piece.unflatten(3, shape).movedim(1, 3).flatten(3, 4) for piece, shape in zip(pieces, shapes, strict=True)
        )


def _require_heads(field_type: FieldType, num_heads: int) -> None:
    if field_type.real:
        raise ValueError(
            f"Attention takes complex fields, got {field_type!r}; lift an image with Conv, or scalars with Linear."
        )
    if not is_integer(num_heads, least=1):
        raise ValueError(f"num_heads is an integer >= 1, got {num_heads!r}.")
    possible = math.gcd(*field_type.multiplicities)
    if possible % num_heads:
        fitting = [n for n in range(1, possible + 1) if possible % n == 0]
        raise ValueError(
            f"num_heads must divide the copies of every degree of {field_type}, got {num_heads}; "
            f"possible: {', '.join(map(str, fitting))}."
        )


def _checked_mask(mask: Tensor, x: Tensor) -> Tensor:
    expected = (x.shape[0], *x.shape[2:])
    if mask.dtype != torch.bool or mask.shape != expected:
        raise ValueError(
            f"a mask is boolean, True for valid voxels, of shape (batch, *space) = {tuple(expected)}, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return mask
