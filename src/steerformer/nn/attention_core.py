"""Steerable scaled dot-product attention; memory grows linearly with the number of voxels.

All arithmetic is real. A key is ``k_j + W B_ij``: content plus position. The rows ``B_ij`` depend on the offset
``x_i - x_j`` only and have neither channel nor head axis, so no encoding is ever formed for a pair and channel.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steerformer.nn.attention_blockwise import attend_blocks, weights_in_blocks
from steerformer.nn.attention_dense import attend_at_once, attend_plain, times_i
from steerformer.nn.exported import is_exported
from steerformer.nn.offsets import Lattice, lattice_within, to_integers
from steerformer.nn.ops import in_single_precision, inside_transform, without_autocast

AttentionImplementation = Literal["auto", "dense", "blockwise"]
Score = Literal["paper", "real"]
_MOST_DENSE = 256  # tokens; up to here all pairs at once are faster than tiles
_MOST_PAIRS = 1 << 22  # pairs of all heads and samples; more at once would take over 64 MB
_MOST_MAP = 4096  # tokens; the weights of all pairs take the square of it for every head


def attend(
    q: Float[Tensor, "batch head component query"],
    k: Float[Tensor, "batch head component key"],
    v: Float[Tensor, "batch head component key"],
    key_map: Float[Tensor, "head component row"],
    value_map: Float[Tensor, "head component row"],
    table: Float[Tensor, "*offsets row"],
    *,
    lattice: Lattice | None = None,
    mask: Bool[Tensor, "batch key"] | None = None,
    window: Float[Tensor, " key"] | None = None,
    falloff: Float[Tensor, "*offsets"] | None = None,
    implementation: AttentionImplementation = "auto",
    score: Score = "paper",
    real: bool = False,
) -> Float[Tensor, "batch head component query"]:
    r"""Steerable attention (paper, eqs. 10-15) on given queries, keys and values.

    $$s_{ij} = q_i^\dagger (k_j + W_k B_{ij}), \quad a_{ij} = \mathrm{softmax}_j (|s_{ij}| + \log w_j + b_{ij}), \quad
      o_i = \sum_j a_{ij} (v_j + W_v B_{ij})$$

    Components are real parts, then imaginary parts; of real fields, only real parts. Scores are not scaled: scale the
    queries.

    Args:
        q, k, v: one column of components for each token; tokens are the voxels of a grid, the last axis fastest. Keys
            may be on another grid than queries.
        key_map, value_map: $W_k$, $W_v$: :meth:`PositionalEncoding.matrix`, split into heads.
        table: $B$ of all offsets, from :meth:`PositionalEncoding.table_on`; without rows there are no positions.
        lattice: offsets of queries and keys; if not given, those of one grid with itself.
        mask: padding mask, ``True`` for valid keys; others may be NaN. A query without any valid key gets zeros.
        window: $w_j$, the weight of each key before the softmax; 1 if not given.
        falloff: $b_{ij}$ of all offsets, -inf for pairs that are farther apart than a radius; 0 if not given.
        implementation: ``"dense"`` forms all pairs at once and has derivatives of every order; ``"blockwise"`` loops
            over tiles of queries and keys, recomputes scores in backward, and has first derivatives only; ``"auto"``
            is dense up to 256 tokens (and under torch.func, in forward mode and with a learned table: only dense
            supports these). Graphs of torch.export and ONNX have all pairs at once.
        score: ``"paper"`` as above; ``"real"`` for $\mathrm{Re}\, s_{ij}$ instead of $|s_{ij}|$.
        real: whether components, and so scores, have no imaginary parts.
    """
    lattice = _require_grids(q, k, table, lattice)
    dtype = q.dtype
    with without_autocast(q):
        q, k, v, key_map, value_map, table = map(in_single_precision, (q, k, v, key_map, value_map, table))
        falloff = None if falloff is None else falloff.to(q)
        if mask is not None:  # a weight of 0 would not cancel NaN
            k, v = (x.masked_fill(~mask[:, None, None], 0) for x in (k, v))
        parts = _score_parts(score, real)
        rows = _position_rows(q, key_map, parts)
        operator = _choose(implementation, q, k, v, key_map, value_map, table)
        bias = _bias(k, mask, window)
        pairs = bias, falloff, to_integers(lattice), parts, score == "real"
        content, position = operator(q, k, v, rows, table, *pairs)[:2]
        return (content + value_map @ position).to(dtype)


def attention_weights(
    q: Float[Tensor, "batch head component query"],
    k: Float[Tensor, "batch head component key"],
    key_map: Float[Tensor, "head component row"],
    table: Float[Tensor, "*offsets row"],
    *,
    lattice: Lattice | None = None,
    mask: Bool[Tensor, "batch key"] | None = None,
    window: Float[Tensor, " key"] | None = None,
    falloff: Float[Tensor, "*offsets"] | None = None,
    only_largest: bool = False,
    score: Score = "paper",
    real: bool = False,
) -> Float[Tensor, "batch head query *key"]:
    """Attention weights ``a_ij`` of all pairs, or only ``max_j a_ij`` (plotted in the paper); no gradients."""
    lattice = _require_grids(q, k, table, lattice)
    with without_autocast(q):
        q, k, key_map, table = (in_single_precision(x.detach()) for x in (q, k, key_map, table))
        parts = _score_parts(score, real)
        rows, bias = _position_rows(q, key_map, parts), _bias(k, mask, window)
        pairs = bias, None if falloff is None else falloff.to(q), lattice, parts, score == "real"
        return weights_in_blocks(q, k, rows, table, *pairs, only_largest=only_largest)


def require_small_map(tokens: int) -> None:
    """Raise ``ValueError`` if the attention weights of all pairs would not fit into memory."""
    if tokens > _MOST_MAP:
        raise ValueError(
            f"return_weights=True takes at most {_MOST_MAP} tokens, got {tokens}; "
            f"return_weights='max' returns the largest weight of each query on any grid."
        )


def require_implementation(name: str) -> None:
    """Raise ``ValueError`` unless ``name`` is an implementation."""
    if name not in ("auto", "dense", "blockwise"):
        raise ValueError(f"implementation is 'auto', 'dense' or 'blockwise', got {name!r}.")


def require_score(name: str) -> None:
    """Raise ``ValueError`` unless ``name`` is a kind of score."""
    if name not in ("paper", "real"):
        raise ValueError(f"score is 'paper' or 'real', got {name!r}.")


def _score_parts(score: Score, real: bool) -> int:
    """Parts of a score that the softmax needs: real and imaginary part, or the real part alone."""
    require_score(score)
    return 1 if real or score == "real" else 2


def _choose(implementation: str, *tensors: Tensor) -> Callable[..., tuple[Tensor, ...]]:
    require_implementation(implementation)
    if is_exported():  # the others are operators of this library
        return attend_plain
    transformed = not torch.compiler.is_compiling() and inside_transform()
    only_plain = transformed or tensors[-1].requires_grad
    if implementation == "blockwise" and only_plain:
        raise ValueError(
            "blockwise attention does not support torch.func, forward mode or a learned table of positions; "
            "use implementation='dense' or 'auto'."
        )
    if only_plain:
        return attend_plain
    (batch, heads, _, queries), keys = tensors[0].shape, tensors[1].shape[-1]
    pairs = queries * keys
    is_small = pairs <= _MOST_DENSE**2 and batch * heads * pairs <= _MOST_PAIRS
    return attend_at_once if implementation == "dense" or (implementation == "auto" and is_small) else attend_blocks


def _require_grids(q: Tensor, k: Tensor, table: Tensor, lattice: Lattice | None) -> Lattice:
    """The lattice of offsets; ``ValueError`` unless table and tokens belong to it."""
    if lattice is None:
        lattice = lattice_within([(length + 1) // 2 for length in table.shape[:-1]])
    grids = tuple(axis.queries for axis in lattice), tuple(axis.keys for axis in lattice)
    for grid, tokens in zip(grids, (q, k), strict=True):
        if math.prod(grid) != tokens.shape[-1]:
            raise ValueError(f"the table of offsets belongs to a grid of {grid} voxels, got {tokens.shape[-1]} tokens.")
    if table.shape[:-1] != torch.Size([axis.length for axis in lattice]):
        raise ValueError(f"the table of offsets does not belong to the lattice {lattice}, got {tuple(table.shape)}.")
    return lattice


def _bias(k: Tensor, mask: Tensor | None, window: Tensor | None) -> Tensor | None:
    """Logarithm of the weight of each key, ``(batch, key)``: -inf for masked ones."""
    if mask is None and window is None:
        return None
    bias = k.new_zeros(k.shape[0], k.shape[-1]) if window is None else window.to(k).log().expand(k.shape[0], -1)
    return bias.contiguous() if mask is None else bias.masked_fill(~mask, -math.inf)


def _position_rows(q: Tensor, key_map: Tensor, parts: int) -> Tensor:
    """Coefficients of the table's rows in the real part, and in the imaginary part, of each query's scores."""
    return (torch.cat([key_map, -times_i(key_map)], dim=-1) if parts == 2 else key_map).mT @ q
