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
from steerformer.nn.ops import in_single_precision, inside_transform, without_autocast

AttentionImplementation = Literal["auto", "dense", "blockwise"]
_MOST_DENSE = 256  # tokens; up to here all pairs at once are faster than tiles
_MOST_PAIRS = 1 << 22  # pairs of all heads and samples; more at once would take over 64 MB
_MOST_MAP = 4096  # tokens; the weights of all pairs take the square of it for every head


def attend(
    q: Float[Tensor, "batch head component token"],
    k: Float[Tensor, "batch head component token"],
    v: Float[Tensor, "batch head component token"],
    key_map: Float[Tensor, "head component row"],
    value_map: Float[Tensor, "head component row"],
    table: Float[Tensor, "*offsets row"],
    *,
    mask: Bool[Tensor, "batch token"] | None = None,
    window: Float[Tensor, " token"] | None = None,
    implementation: AttentionImplementation = "auto",
) -> Float[Tensor, "batch head component token"]:
    r"""Steerable attention (paper, eqs. 10-15) on given queries, keys and values.

    $$s_{ij} = q_i^\dagger (k_j + W_k B_{ij}), \quad a_{ij} = \mathrm{softmax}_j (|s_{ij}| + \log w_j), \quad
      o_i = \sum_j a_{ij} (v_j + W_v B_{ij})$$

    Components are real parts, then imaginary parts. Scores are not scaled: scale the queries.

    Args:
        q, k, v: one column of components for each token; tokens are the voxels of a grid, the last axis fastest.
        key_map, value_map: $W_k$, $W_v$: :meth:`PositionalEncoding.matrix`, split into heads.
        table: $B$ of all offsets, from :meth:`PositionalEncoding.table`; without rows there are no positions.
        mask: padding mask, ``True`` for valid keys; others may be NaN. A query without any valid key gets zeros.
        window: $w_j$, the weight of each key before the softmax; 1 if not given.
        implementation: ``"dense"`` forms all pairs at once and has derivatives of every order; ``"blockwise"`` loops
            over tiles of queries and keys, recomputes scores in backward, and has first derivatives only; ``"auto"``
            is dense up to 256 tokens (and under torch.func, in forward mode and with a learned table: only dense
            supports these). Graphs of torch.export and ONNX have all pairs at once.
    """
    _require_grid(q, table)
    dtype = q.dtype
    with without_autocast(q):
        q, k, v, key_map, value_map, table = map(in_single_precision, (q, k, v, key_map, value_map, table))
        if mask is not None:  # a weight of 0 would not cancel NaN
            k, v = (x.masked_fill(~mask[:, None, None], 0) for x in (k, v))
        rows = _position_rows(q, key_map)
        operator = _choose(implementation, q, k, v, key_map, value_map, table)
        content, position = operator(q, k, v, rows, table, _bias(q, mask, window))[:2]
        return (content + value_map @ position).to(dtype)


def attention_weights(
    q: Float[Tensor, "batch head component token"],
    k: Float[Tensor, "batch head component token"],
    key_map: Float[Tensor, "head component row"],
    table: Float[Tensor, "*offsets row"],
    *,
    mask: Bool[Tensor, "batch token"] | None = None,
    window: Float[Tensor, " token"] | None = None,
    only_largest: bool = False,
) -> Float[Tensor, "batch head token *token"]:
    """Attention weights ``a_ij`` of all pairs, or only ``max_j a_ij`` (plotted in the paper); no gradients."""
    _require_grid(q, table)
    with without_autocast(q):
        q, k, key_map, table = (in_single_precision(x.detach()) for x in (q, k, key_map, table))
        rows, bias = _position_rows(q, key_map), _bias(q, mask, window)
        return weights_in_blocks(q, k, rows, table, bias, only_largest=only_largest)


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
    batch, heads, tokens = (tensors[0].shape[axis] for axis in (0, 1, -1))
    is_small = tokens <= _MOST_DENSE and batch * heads * tokens**2 <= _MOST_PAIRS
    return attend_at_once if implementation == "dense" or (implementation == "auto" and is_small) else attend_blocks


def _require_grid(q: Tensor, table: Tensor) -> None:
    space = tuple((length + 1) // 2 for length in table.shape[:-1])
    if math.prod(space) != q.shape[-1]:
        raise ValueError(f"the table of offsets belongs to a grid of {space} voxels, got {q.shape[-1]} tokens.")


def _bias(q: Tensor, mask: Tensor | None, window: Tensor | None) -> Tensor | None:
    """Logarithm of the weight of each key, ``(batch, key)``: -inf for masked ones."""
    if mask is None and window is None:
        return None
    bias = q.new_zeros(q.shape[0], q.shape[-1]) if window is None else window.to(q).log().expand(q.shape[0], -1)
    return bias.contiguous() if mask is None else bias.masked_fill(~mask, -math.inf)


def _position_rows(q: Tensor, key_map: Tensor) -> Tensor:
    """Coefficients of the table's rows in the real and in the imaginary part of each query's scores."""
    return torch.cat([key_map, -times_i(key_map)], dim=-1).mT @ q
