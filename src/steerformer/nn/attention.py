"""Equivariant multi-head attention: self-attention, cross-attention, and local attention within a radius."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType
from steerformer.nn.attention_checks import attention_spacings, require_attention_types, require_bound, source_and_mask
from steerformer.nn.attention_core import (
    AttentionImplementation,
    Score,
    attend,
    attention_weights,
    require_implementation,
    require_score,
    require_small_map,
)
from steerformer.nn.linear import Linear, degree_runs, from_columns, is_plain, multiply, to_columns
from steerformer.nn.masks import finite_where_invalid
from steerformer.nn.metadata import with_metadata, without_metadata
from steerformer.nn.offsets import Lattice
from steerformer.nn.ops import in_single_precision, require_same_placement, require_space, without_autocast
from steerformer.nn.position import PositionalEncoding, Radial
from steerformer.nn.radius import log_falloff, require_radius
from steerformer.nn.window import radial_window, require_width

Scale = Literal["paper", "total"]
_SHORT = 1e-3  # squared norm below which queries and keys are not normalized


class Attention(ExactConstants):
    r"""Equivariant multi-head self-attention over all voxels, or cross-attention to another field (paper, section 3.1).

    $$q_i = f(x_i) W_Q, \quad k_{ij} = g(y_j) W_K + P(x_i - y_j), \quad v_{ij} = g(y_j) W_V + P'(x_i - y_j)$$
    $$s_{ij} = \sum_\rho q_{i\rho}^\dagger k_{ij\rho} / \sqrt{d_\rho}, \quad
      a_{ij} = \mathrm{softmax}_j |s_{ij}|, \quad f'(x_i) = \sum_j a_{ij} v_{ij}\, W_O$$

    (eqs. 10-15), where $g = f$ and $y = x$ in self-attention. In cross-attention $g$ is the context, on its own grid
    with the same center; degrees that only $g$ has are dropped, and keys and values of degrees that only $f$ has are
    positions alone. $P$ and $P'$ are two :class:`PositionalEncoding`\ s. Each head takes an equal share of the copies
    of every degree. With a radius $r$ attention is local,
    $a_{ij} = \mathrm{softmax}_j (|s_{ij}| + \log w(|x_i - y_j|))$, where $w$ is 0 beyond $r$.

    Attention commutes with rotations, $\mathrm{Attention}(Rf, Rg) = R\,\mathrm{Attention}(f, g)$ (theorem 1): exactly
    for the rotations of the grid, approximately at other angles. Parameters do not depend on the size of the grid. Time
    grows with the number of pairs of voxels, with a radius with that of pairs within it; memory grows linearly.
    Initialization: ``docs/theory.md``.

    Args:
        query_type: type of input and output.
        key_type: type of the context, complex or real; if not given, the layer is self-attention.
        num_heads: number of heads; must divide the copies of every degree.
        score: ``"paper"`` for the softmax of $|s_{ij}|$, the default for complex fields; ``"real"`` for that of
            $\mathrm{Re}\, s_{ij}$, the default for real fields: complex numbers have no order, real ones have, and with
            their sign this is ordinary dot-product attention (``docs/theory.md``).
        scale: ``"paper"`` divides the scores of degree $\rho$ by $\sqrt{d_\rho}$, its copies in a head; ``"total"``
            divides all scores by the square root of a head's components (orders times copies).
        positional: add positional encodings; without them attention ignores where voxels are.
        radial: radial profile of the encodings, ``"soft"``, ``"smooth"``, ``"paper"`` or a function; see
            :class:`PositionalEncoding`.
        spacing: voxel spacing along each axis; 1 if not given.
        context_spacing: voxel spacing of the context, ``spacing`` if not given. Along each axis their ratio is one of
            small whole numbers, such as 2:1 or 3:2.
        radius: largest distance of a query and a key, in the units of ``spacing`` (voxels if not given); ``None`` for
            no limit. A query without any key within it gets zeros from attention.
        falloff: distance over which $w$ falls smoothly from 1 to 0, which it reaches at the radius; with 0 all keys
            within the radius have $w = 1$, and rotations by arbitrary angles change which keys these are.
        key_window: width in voxels of a :class:`RadialWindow` $w_j$ on the keys,
            $a_{ij} = \mathrm{softmax}_j (|s_{ij}| + \log w_j)$. For classifiers: less equivariance error at arbitrary
            angles, but no equivariance to translations.
        qk_norm: normalize the queries and keys of each head, so that the scores of their content are at most this;
            ``None`` leaves them as they are. Scores without a bound can select single voxels, and which voxel is
            selected then depends on how content lies on the grid: with a bound of 2 or 3 there is less equivariance
            error at arbitrary angles.
        implementation: ``"dense"``, ``"blockwise"`` or ``"auto"``; see :func:`~steerformer.nn.attention_core.attend`.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``query_type.channels`` and two spatial axes for images,
          three for volumes.
        - Context: $(N, C_{key}, *space_{key})$ with $C_{key}$ = ``key_type.channels``, of any size.
        - Mask: $(N, *space)$, boolean, on the grid of the context if there is one.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features, image = sf.FieldType(sf.SO2, (8, 4, 2)), sf.FieldType.image(sf.SO2, 3)
    >>> attention = sf.nn.Attention(features, num_heads=2, radius=3.0)
    >>> attention(features.randn(2, 8)).shape
    torch.Size([2, 28, 8, 8])
    >>> cross = sf.nn.Attention(features, image, num_heads=2)
    >>> cross(features.randn(2, 8), image.randn(2, (5, 6))).shape
    torch.Size([2, 28, 8, 8])
    """

    def __init__(
        self,
        query_type: FieldType,
        key_type: FieldType | None = None,
        *,
        num_heads: int,
        score: Score | None = None,
        scale: Scale = "paper",
        positional: bool = True,
        radial: Radial = "soft",
        spacing: Sequence[float] | None = None,
        context_spacing: Sequence[float] | None = None,
        radius: float | None = None,
        falloff: float = 0.0,
        key_window: float | None = None,
        qk_norm: float | None = None,
        implementation: AttentionImplementation = "auto",
    ) -> None:
        super().__init__()
        require_attention_types(query_type, key_type, num_heads)
        if scale not in ("paper", "total"):
            raise ValueError(f"scale is 'paper' or 'total', got {scale!r}.")
        self.score: Score = score or ("real" if query_type.real else "paper")
        require_score(self.score)
        require_implementation(implementation)
        self.in_type = self.out_type = query_type
        self.context_type = key_type
        """Type of the context; ``None`` in self-attention."""
        self.num_heads, self.scale, self.implementation = int(num_heads), scale, implementation
        self.key_window = None if key_window is None else require_width(key_window)
        self.window_center: tuple[float, ...] | None = None
        """Center of the window, in voxels from that of the grid; audits move it."""
        self.radius, self.falloff = require_radius(radius, falloff)
        if key_window is not None and any(len(set(sides or ())) > 1 for sides in (spacing, context_spacing)):
            raise ValueError(f"key_window is for isotropic voxels, got spacing {tuple(spacing or ())}.")
        self.qk_norm = None if qk_norm is None else require_bound(qk_norm)
        source = key_type or query_type
        self.query, self.key, self.value = (Linear(of, query_type) for of in (query_type, source, source))
        self.out = Linear(query_type, query_type)
        self._runs = degree_runs(query_type, query_type)
        self.key_position: PositionalEncoding | None = None
        self.value_position: PositionalEncoding | None = None
        if positional:
            self.key_position = PositionalEncoding(query_type, radial=radial, spacing=spacing)
            self.value_position = PositionalEncoding(query_type, radial=radial, spacing=spacing)
        self._spacings = attention_spacings(query_type, key_type, spacing, context_spacing, self.radius, positional)
        factors: list[float] = []  # one for each component of a head
        for degree in query_type.degrees:
            copies = query_type.multiplicity(degree)
            factors += [self._scale(copies)] * (query_type.group.irrep_dim(degree) * copies // self.num_heads)
        factors *= query_type.parts
        self.register_constant("_factors", torch.tensor(factors, dtype=torch.float64, device="cpu")[:, None])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"."""
        for linear in (self.query, self.key, self.value, self.out):
            linear.reset_parameters()
        degrees = [d for d in self.in_type.degrees if (self.context_type or self.in_type).multiplicity(d)]
        copies = [(self.in_type.group.irrep_dim(d), self.in_type.multiplicity(d)) for d in degrees]
        # the product of two complex numbers of variance 2 has variance 4, and its real part has variance 2
        of_product = self.in_type.parts * (2 if self.score == "paper" and not self.in_type.real else 1)
        variance = of_product * sum(orders * count * self._scale(count) ** 2 for orders, count in copies)
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
        context: Float[Tensor, "batch others *keys"] | Bool[Tensor, "batch *space"] | None = None,
        mask: Bool[Tensor, "batch *keys"] | None = None,
        *,
        return_weights: bool | Literal["max"] = False,
    ) -> Float[Tensor, "batch channels *space"] | tuple[Tensor, Tensor]:
        """Attend to all voxels, or to the valid ones.

        Args:
            x: field of type ``in_type``.
            context: field of type ``context_type``, in cross-attention; in self-attention the mask may be here.
            mask: padding mask, ``True`` for valid voxels, of the context if there is one. Only these are attended to,
                but all voxels get an output. Invalid voxels may hold NaN or infinity, and count as zeros then.
            return_weights: ``True`` also returns the attention weights, ``(batch, head, query, key)``, on grids of at
                most 4096 voxels; ``"max"`` the largest weight of each query, ``(batch, head, *space)``, on any grid.
        """
        require_space(self.in_type, x, "Attention")
        given, x, space = x, without_metadata(x), x.shape[2:]
        source, mask = source_and_mask(x, self.in_type, self.context_type, context, mask)
        if return_weights not in (True, False, "max"):
            raise ValueError(f"return_weights is True, False or 'max', got {return_weights!r}.")
        if return_weights is True:
            require_small_map(max(math.prod(space), math.prod(source.shape[2:])))
        if mask is not None:
            source, mask = finite_where_invalid(source, mask), mask.flatten(1)
        q, k, v = self._queries_keys_values(x.flatten(2), source.flatten(2))
        if self.qk_norm is not None:
            with without_autocast(q):
                q, k = self.qk_norm * _unit(q), _unit(k)
        lattice = self._spacings.lattice(space, source.shape[2:])
        key_map, value_map, table = self._positions(x, lattice)
        options: dict[str, Any] = {"score": self.score, "real": self.in_type.real, "lattice": lattice, "mask": mask}
        options |= self._weights_of_keys(lattice, source)
        mixed = attend(q, k, v, key_map, value_map, table, implementation=self.implementation, **options)
        out = with_metadata(self._mix_heads(mixed).unflatten(2, space), given)
        if return_weights is False:
            return out
        weights = attention_weights(q, k, key_map, table, only_largest=return_weights == "max", **options)
        return out, weights.unflatten(2, space) if return_weights == "max" else weights

    def extra_repr(self) -> str:
        options = {"radius": self.radius, "key_window": self.key_window, "qk_norm": self.qk_norm}
        chosen = "".join(f", {name}={value}" for name, value in options.items() if value is not None)
        context = "" if self.context_type is None else f", context={self.context_type}"
        return (
            f"{self.in_type}{context}, num_heads={self.num_heads}, score={self.score}, scale={self.scale}, "
            f"implementation={self.implementation}{chosen}"
        )

    def _scale(self, copies: int) -> float:
        """Factor of the scores of a degree with this multiplicity."""
        components = self.in_type.channels / self.in_type.parts
        return 1 / math.sqrt((copies if self.scale == "paper" else components) / self.num_heads)

    def _positions(self, x: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor, Tensor]:
        """Matrices of both encodings, split into heads, and the table of offsets; without encodings they are empty."""
        if self.key_position is None or self.value_position is None:
            components = self.in_type.channels // self.num_heads
            empty = x.new_zeros(self.num_heads, components, 0)
            return empty, empty, x.new_zeros(*(axis.length for axis in lattice), 0)
        self.key_position.require_same_table(self.value_position)
        maps = [self._split_heads(position.matrix()[None])[0] for position in (self.key_position, self.value_position)]
        return maps[0], maps[1], self.key_position.table_on(lattice, self._spacings.units)

    def _weights_of_keys(self, lattice: Lattice, source: Tensor) -> dict[str, Tensor]:
        """The window and the fall-off with the distance, as far as there are any."""
        found = {}
        if self.key_window is not None:
            window = radial_window(tuple(source.shape[2:]), self.key_window, source, center=self.window_center)
            found["window"] = window.flatten()
        if self.radius is not None:
            found["falloff"] = log_falloff(lattice, self._spacings, self.falloff, source)
        return found

    def _queries_keys_values(
        self, x: Float[Tensor, "batch channels query"], source: Float[Tensor, "batch others key"]
    ) -> tuple[Tensor, ...]:
        """Queries, keys and values, split into heads; queries are scaled. In self-attention only the source counts."""
        if self.context_type is None:
            return self._project(source, self.query, self.key, self.value)
        return *self._project(x, self.query), *self._project(source, self.key, self.value)

    def _project(self, x: Float[Tensor, "batch channels token"], *layers: nn.Module) -> tuple[Tensor, ...]:
        """Linear maps of one field from one matrix product, split into heads."""
        linear = [layer for layer in layers if isinstance(layer, Linear) and is_plain(layer)]
        if len(linear) < len(layers):
            found = [(layer, self._split_heads(layer(x))) for layer in layers]
            scaled = [y * self.constant("_factors", y).to(y.dtype) if of is self.query else y for of, y in found]
            return tuple(scaled)
        require_same_placement(x, linear[0].weights[0], "Attention")
        runs, parts, out_parts = linear[0].runs, linear[0].in_type.parts, self.in_type.parts
        scales = [self._scale(run.out_copies) for run in runs if run.is_shared]
        matrices = [
            torch.cat([m * scale if of is self.query else m for of, m in zip(linear, run, strict=True)], dim=1)
            for scale, *run in zip(scales, *(layer.matrices() for layer in linear), strict=True)
        ]
        columns = to_columns(x.unflatten(1, (1, parts, -1)), runs)
        shape = (len(linear), x.shape[0], self.num_heads, out_parts, x.shape[2])
        return from_columns(multiply(matrices, columns), runs, shape).flatten(3, 4).unbind()

    def _mix_heads(self, x: Float[Tensor, "batch head component token"]) -> Float[Tensor, "batch channels token"]:
        """Merge the heads and apply the linear layer of the output."""
        parts = self.in_type.parts
        columns = to_columns(x.unflatten(2, (parts, -1)), self._runs)
        if is_plain(self.out):
            columns = multiply(self.out.matrices(), columns)
        merged = from_columns(columns, self._runs, (1, x.shape[0], 1, parts, x.shape[3]))[0].flatten(1, 3)
        return merged if is_plain(self.out) else self.out(merged)

    def _split_heads(self, x: Float[Tensor, "batch channels column"]) -> Float[Tensor, "batch head component column"]:
        """Split channels into heads; components are ordered as the channels of a field with a head's copies."""
        parts = self.in_type.parts
        columns = to_columns(x.unflatten(1, (1, parts, -1)), self._runs)
        return from_columns(columns, self._runs, (1, x.shape[0], self.num_heads, parts, x.shape[2]))[0].flatten(2, 3)


def _unit(x: Float[Tensor, "batch head component token"]) -> Float[Tensor, "batch head component token"]:
    """Normalized over components; vectors much shorter than usual stay short."""
    precise = in_single_precision(x)
    return (precise * (precise.square().sum(dim=2, keepdim=True) + _SHORT).rsqrt()).to(x.dtype)
