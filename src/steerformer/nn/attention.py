"""Equivariant multi-head self-attention."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, as_number, is_integer, require_field_type
from steerformer.nn.attention_core import (
    AttentionImplementation,
    attend,
    attention_weights,
    require_implementation,
    require_small_map,
)
from steerformer.nn.linear import Linear, degree_runs, from_columns, is_plain, multiply, to_columns
from steerformer.nn.ops import (
    in_single_precision,
    require_same_placement,
    require_space,
    with_metadata,
    without_autocast,
    without_metadata,
)
from steerformer.nn.position import PositionalEncoding, Radial
from steerformer.nn.window import radial_window, require_width

Scale = Literal["paper", "total"]
_SHORT = 1e-3  # squared norm below which queries and keys are not normalized


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
        radial: radial profile of the encodings, ``"soft"``, ``"smooth"``, ``"paper"`` or a function; see
            :class:`PositionalEncoding`.
        spacing: voxel spacing along each axis; 1 if not given.
        key_window: width in voxels of a :class:`RadialWindow` $w_j$ on the keys,
            $a_{ij} = \mathrm{softmax}_j (|s_{ij}| + \log w_j)$. For classifiers: less equivariance error at arbitrary
            angles, but no equivariance to translations.
        qk_norm: normalize the queries and keys of each head, so that the scores of their content are at most this;
            ``None`` leaves them as they are. Scores without a bound can select single voxels, and which voxel is
            selected then depends on how content lies on the grid: with a bound of 2 or 3 there is less equivariance
            error at arbitrary angles.
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
        key_window: float | None = None,
        qk_norm: float | None = None,
        implementation: AttentionImplementation = "auto",
    ) -> None:
        super().__init__()
        require_field_type(field_type, "Attention")
        _require_heads(field_type, num_heads)
        if scale not in ("paper", "total"):
            raise ValueError(f"scale is 'paper' or 'total', got {scale!r}.")
        require_implementation(implementation)
        self.in_type = self.out_type = field_type
        self.num_heads, self.scale, self.implementation = int(num_heads), scale, implementation
        self.key_window = None if key_window is None else require_width(key_window)
        self.window_center: tuple[float, ...] | None = None
        """Center of the window, in voxels from that of the grid; audits move it."""
        if key_window is not None and len(set(spacing or ())) > 1:
            raise ValueError(f"key_window is for isotropic voxels, got spacing {tuple(spacing or ())}.")
        if qk_norm is not None and not 0 < as_number(qk_norm) < math.inf:
            raise ValueError(f"qk_norm is the largest score of content, a number above 0, got {qk_norm!r}.")
        self.qk_norm = None if qk_norm is None else float(qk_norm)
        self.query, self.key, self.value = (Linear(field_type, field_type) for _ in range(3))
        self.out = Linear(field_type, field_type)
        self._runs = degree_runs(field_type, field_type)
        self.key_position: PositionalEncoding | None = None
        self.value_position: PositionalEncoding | None = None
        if positional:
            self.key_position = PositionalEncoding(field_type, radial=radial, spacing=spacing)
            self.value_position = PositionalEncoding(field_type, radial=radial, spacing=spacing)
        factors: list[float] = []  # one for each component of a head
        for degree in field_type.degrees:
            copies = field_type.multiplicity(degree)
            factors += [self._scale(copies)] * (field_type.group.irrep_dim(degree) * copies // self.num_heads)
        self.register_constant("_factors", torch.tensor(factors * 2, dtype=torch.float64, device="cpu")[:, None])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"."""
        for linear in (self.query, self.key, self.value, self.out):
            linear.reset_parameters()
        copies = [(self.in_type.group.irrep_dim(d), self.in_type.multiplicity(d)) for d in self.in_type.degrees]
        # the product of two complex numbers of variance 2 has variance 4
        variance = 4 * sum(orders * count * self._scale(count) ** 2 for orders, count in copies)
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
                Invalid voxels may hold NaN or infinity, and count as zeros then.
            return_weights: ``True`` also returns the attention weights, ``(batch, head, query, key)``, on grids of at
                most 4096 voxels; ``"max"`` the largest weight of each query, ``(batch, head, *space)``, on any grid.
        """
        require_space(self.in_type, x, "Attention")
        given, x, space = x, without_metadata(x), x.shape[2:]
        if return_weights not in (True, False, "max"):
            raise ValueError(f"return_weights is True, False or 'max', got {return_weights!r}.")
        if return_weights is True:
            require_small_map(math.prod(space))
        if mask is not None:
            mask = without_metadata(mask)
            x, mask = finite_where_invalid(x, mask), mask.flatten(1)
        q, k, v = self._queries_keys_values(x.flatten(2))
        if self.qk_norm is not None:
            with without_autocast(q):
                q, k = self.qk_norm * _unit(q), _unit(k)
        key_map, value_map, table = self._positions(x)
        window = None
        if self.key_window is not None:
            window = radial_window(tuple(space), self.key_window, x, center=self.window_center).flatten()
        mixed = attend(q, k, v, key_map, value_map, table, mask=mask, window=window, implementation=self.implementation)
        out = with_metadata(self._mix_heads(mixed).unflatten(2, space), given)
        if return_weights is False:
            return out
        only_largest = return_weights == "max"
        weights = attention_weights(q, k, key_map, table, mask=mask, window=window, only_largest=only_largest)
        return out, weights.unflatten(2, space) if return_weights == "max" else weights

    def extra_repr(self) -> str:
        options = {"key_window": self.key_window, "qk_norm": self.qk_norm}
        chosen = "".join(f", {name}={value}" for name, value in options.items() if value is not None)
        return (
            f"{self.in_type}, num_heads={self.num_heads}, scale={self.scale}, implementation={self.implementation}"
            f"{chosen}"
        )

    def _scale(self, copies: int) -> float:
        """Factor of the scores of a degree with this multiplicity."""
        return 1 / math.sqrt((copies if self.scale == "paper" else self.in_type.channels / 2) / self.num_heads)

    def _positions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Matrices of both encodings, split into heads, and the table of offsets; without encodings they are empty."""
        if self.key_position is None or self.value_position is None:
            components = self.in_type.channels // self.num_heads
            empty = x.new_zeros(self.num_heads, components, 0)
            return empty, empty, x.new_zeros(*(2 * n - 1 for n in x.shape[2:]), 0)
        self.key_position.require_same_table(self.value_position)
        maps = [self._split_heads(position.matrix()[None])[0] for position in (self.key_position, self.value_position)]
        return maps[0], maps[1], self.key_position.table(tuple(x.shape[2:]))

    def _queries_keys_values(self, x: Float[Tensor, "batch channels token"]) -> tuple[Tensor, ...]:
        """Queries, keys and values from one matrix product, split into heads; queries are scaled."""
        layers = (self.query, self.key, self.value)
        if not all(is_plain(layer) for layer in layers):
            q, k, v = (self._split_heads(layer(x)) for layer in layers)
            return q * self.constant("_factors", q).to(q.dtype), k, v
        require_same_placement(x, self.query.weights[0], "Attention")
        matrices = [
            torch.cat([query * self._scale(run.in_copies), key, value], dim=1)
            for run, query, key, value in zip(self._runs, *(layer.matrices() for layer in layers), strict=True)
        ]
        shape = (3, x.shape[0], self.num_heads, 2, x.shape[2])
        return from_columns(multiply(matrices, self._columns(x)), self._runs, shape).flatten(3, 4).unbind()

    def _mix_heads(self, x: Float[Tensor, "batch head component token"]) -> Float[Tensor, "batch channels token"]:
        """Merge the heads and apply the linear layer of the output."""
        columns = to_columns(x.unflatten(2, (2, -1)), self._runs)
        if is_plain(self.out):
            columns = multiply(self.out.matrices(), columns)
        merged = from_columns(columns, self._runs, (1, x.shape[0], 1, 2, x.shape[3]))[0].flatten(1, 3)
        return merged if is_plain(self.out) else self.out(merged)

    def _split_heads(self, x: Float[Tensor, "batch channels column"]) -> Float[Tensor, "batch head component column"]:
        """Split channels into heads; components are ordered as the channels of a field with a head's copies."""
        shape = (1, x.shape[0], self.num_heads, 2, x.shape[2])
        return from_columns(self._columns(x), self._runs, shape)[0].flatten(2, 3)

    def _columns(self, x: Float[Tensor, "batch channels column"]) -> Iterator[Tensor]:
        return to_columns(x.unflatten(1, (1, 2, -1)), self._runs)


def _unit(x: Float[Tensor, "batch head component token"]) -> Float[Tensor, "batch head component token"]:
    """Normalized over components; vectors much shorter than usual stay short."""
    precise = in_single_precision(x)
    return (precise * (precise.square().sum(dim=2, keepdim=True) + _SHORT).rsqrt()).to(x.dtype)


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
