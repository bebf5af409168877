"""Steerable scaled dot-product attention; memory grows linearly with the number of voxels.

All arithmetic is real. A key is ``k_j + W B_ij``: content plus position. The rows ``B_ij`` depend on the offset
``x_i - x_j`` only and have neither channel nor head axis, so no encoding is ever formed for a pair and channel.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steerformer.nn.attention_blockwise import attend_blocks, weights_in_blocks
from steerformer.nn.ops import is_functional, without_autocast

Implementation = Literal["auto", "dense", "blockwise"]
_MOST_DENSE = 128  # tokens; up to here all pairs at once are faster than blocks
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
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch head component token"]:
    r"""Steerable attention (paper, eqs. 10-15) on given queries, keys and values.

    $$s_{ij} = q_i^\dagger (k_j + W_k B_{ij}), \quad a_{ij} = \mathrm{softmax}_j |s_{ij}|, \quad
      o_i = \sum_j a_{ij} (v_j + W_v B_{ij})$$

    Components are real parts, then imaginary parts. Scores are not scaled: scale the queries.

    Args:
        q, k, v: one column of components for each token; tokens are the voxels of a grid, the last axis fastest.
        key_map, value_map: $W_k$, $W_v$: :meth:`PositionalEncoding.matrix`, split into heads.
        table: $B$ of all offsets, from :meth:`PositionalEncoding.table`; without rows there are no positions.
        mask: padding mask, ``True`` for valid keys. A query without any valid key gets zeros.
        implementation: ``"dense"`` forms all pairs in plain torch and has derivatives of every order; ``"blockwise"``
            loops over blocks of queries, recomputes scores in backward, and has first derivatives only; ``"auto"``
            chooses the faster one (the dense one under torch.func and with a learned table: only it supports these).
    """
    _require_grid(q, table)
    dtype = q.dtype
    with without_autocast(q):
        q, k, v, key_map, value_map, table = _in_single_precision(q, k, v, key_map, value_map, table)
        if _choose(implementation, q, k, v, key_map, value_map, table) == "dense":
            weights, basis = _dense_weights(q, k, key_map, table, mask)
            content = torch.einsum("bhij,bhej->bhei", weights, v)
            position = torch.einsum("bhij,ijr->bhri", weights, basis)
            return (content + value_map @ position).to(dtype)
        content, position, _ = attend_blocks(q, k, v, _position_rows(q, key_map), table, mask)
        return (content + value_map @ position).to(dtype)


def attention_weights(
    q: Float[Tensor, "batch head component token"],
    k: Float[Tensor, "batch head component token"],
    key_map: Float[Tensor, "head component row"],
    table: Float[Tensor, "*offsets row"],
    *,
    mask: Bool[Tensor, "batch token"] | None = None,
    only_largest: bool = False,
) -> Float[Tensor, "batch head token *token"]:
    """Attention weights ``a_ij`` of all pairs, or only ``max_j a_ij`` (plotted in the paper); no gradients."""
    _require_grid(q, table)
    with without_autocast(q):
        q, k, key_map, table = _in_single_precision(q.detach(), k.detach(), key_map.detach(), table)
        return weights_in_blocks(q, k, _position_rows(q, key_map), table, mask, only_largest=only_largest)


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


def _choose(implementation: str, *tensors: Tensor) -> str:
    require_implementation(implementation)
    only_dense = any(is_functional(x) for x in tensors) or tensors[-1].requires_grad
    if implementation == "blockwise" and only_dense:
        raise ValueError(
            "blockwise attention supports neither torch.func nor a learned table of positions; "
            "use implementation='dense' or 'auto'."
        )
    if implementation != "auto":
        return implementation
    return "dense" if only_dense or tensors[0].shape[-1] <= _MOST_DENSE else "blockwise"


def _in_single_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast half precision to float32, which scores need."""
    return tuple(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in tensors)


def _require_grid(q: Tensor, table: Tensor) -> None:
    space = tuple((length + 1) // 2 for length in table.shape[:-1])
    if math.prod(space) != q.shape[-1]:
        raise ValueError(f"the table of offsets belongs to a grid of {space} voxels, got {q.shape[-1]} tokens.")


def _position_rows(q: Tensor, key_map: Tensor) -> Tensor:
    """Coefficients of the table's rows in the real and in the imaginary part of each query's scores."""
    return torch.cat([key_map, _times_minus_i(key_map)], dim=-1).mT @ q


def _times_minus_i(x: Tensor) -> Tensor:
    re, im = x.chunk(2, dim=-2)
    return torch.cat([im, -re], dim=-2)


def _dense_weights(q: Tensor, k: Tensor, key_map: Tensor, table: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention weights ``(batch, head, i, j)`` and the rows of all pairs ``(i, j, row)``."""
    basis = _all_pairs(table)
    rows = _position_rows(q, key_map).unflatten(2, (2, -1))
    pair = torch.stack([q.mT @ k, q.mT @ _times_minus_i(k)], dim=2)
    pair = pair + torch.einsum("bhpri,ijr->bhpij", rows, basis)
    scores = _modulus(pair)
    if mask is None:
        return scores.softmax(dim=-1), basis
    hidden = ~mask[:, None, None]
    # filled twice: softmax returns NaN where no key is valid
    return scores.masked_fill(hidden, -math.inf).softmax(dim=-1).masked_fill(hidden, 0), basis


def _modulus(pair: Float[Tensor, "batch head 2 i j"]) -> Float[Tensor, "batch head i j"]:
    """Absolute value with derivative 0 at 0; torch's is NaN there."""
    squares = pair.square().sum(dim=2)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0)


def _all_pairs(table: Float[Tensor, "*offsets row"]) -> Float[Tensor, "i j row"]:
    """Entry of the table for every query and key: entry ``t`` has offset ``n - 1 - t``."""
    space = [(length + 1) // 2 for length in table.shape[:-1]]
    index = torch.zeros(1, 1, dtype=torch.long, device=table.device)
    for n in space:
        axis = torch.arange(n, device=table.device)
        step = n - 1 - axis[:, None] + axis  # along this axis, for i and j
        grown = index[:, None, :, None] * (2 * n - 1) + step[None, :, None, :]
        index = grown.flatten(2).flatten(0, 1)
    return table.flatten(0, -2)[index]
