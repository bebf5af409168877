"""Attention in blocks of queries and keys, as two custom operators, opaque to torch.compile.

Without a reach all queries attend to all keys. With a reach the grid is cut into regions, boxes of queries with the
keys around them, and the work is proportional to the number of neighbors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steerformer.nn.attention_regions import backward_in_regions, forward_in_regions, weights_in_regions
from steerformer.nn.attention_scores import Tokens, backward_in_tiles, forward_in_tiles, weights_in_tiles
from steerformer.nn.attention_tiles import Tiling
from steerformer.nn.offsets import Lattice, from_integers
from steerformer.nn.ops import without_autocast


@torch.library.custom_op("steerformer::attend_blocks", mutates_args=())
def attend_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    table: Tensor,
    bias: Tensor | None,
    falloff: Tensor | None,
    lattice: Sequence[int],
    parts: int = 2,
    signed: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Also returns, for backward, the binary logarithm of the sum of exponentials, ``(batch, head, 1, query)``, which is
    empty with a fall-off.

    Args:
        q: ``(batch, head, component, query)``.
        k, v: ``(batch, head, component, key)``.
        rows: ``(batch, head, part * row, query)``: coefficients of the table's rows in each part of the scores.
        table: ``(*offsets, row)``.
        bias: added to the moduli of the scores, ``(batch, key)``; -inf masks a key.
        falloff: added to the moduli of the scores, ``(*offsets)``; -inf masks a pair.
        lattice: :func:`to_integers` of the offsets of queries and keys.
        parts: 2 for complex scores, 1 for real ones.
        signed: take the softmax of the real scores instead of their moduli.
    """
    axes, given = from_integers(lattice), _tokens(q, k, v, rows, bias, parts, signed)
    if falloff is None:
        found = forward_in_tiles(Tiling(table, axes, len(given.q)), given)
    else:
        content, position = forward_in_regions(axes, table, falloff, given)
        found = content, position, content.new_empty(len(content), 0, 0)
    content, position, log_sum = (x.unflatten(0, q.shape[:2]) for x in found)
    return content, position, log_sum


@torch.library.custom_op("steerformer::attend_blocks_backward", mutates_args=())
def attend_blocks_backward(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    table: Tensor,
    bias: Tensor | None,
    falloff: Tensor | None,
    lattice: Sequence[int],
    content: Tensor,
    position: Tensor,
    log_sum: Tensor,
    parts: int = 2,
    signed: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    axes, given = from_integers(lattice), _tokens(q, k, v, rows, bias, parts, signed)
    of_content, of_position = grad_content.flatten(0, 1), grad_position.flatten(0, 1)
    if falloff is None:
        tiling = Tiling(table, axes, len(given.q))
        outputs = content.flatten(0, 1), position.flatten(0, 1), log_sum.flatten(0, 1)
        found = backward_in_tiles(tiling, given, of_content, of_position, *outputs)
    else:
        found = backward_in_regions(axes, table, falloff, given, of_content, of_position)
    into_q, into_k, into_v, into_rows = (x.unflatten(0, q.shape[:2]) for x in found)
    return into_q, into_k, into_v, into_rows


def weights_in_blocks(
    q: Tensor,
    k: Tensor,
    rows: Tensor,
    table: Tensor,
    bias: Tensor | None,
    falloff: Tensor | None,
    lattice: Lattice,
    parts: int,
    signed: bool,
    *,
    only_largest: bool,
) -> Tensor:
    """Attention weights of all pairs, ``(batch, head, query, key)``, or the largest of each query; no gradients."""
    given = _tokens(q, k, k, rows, bias, parts, signed)
    with torch.no_grad():
        if falloff is None:
            tiling = Tiling(table, lattice, len(given.q), all_keys=True)
            found = weights_in_tiles(tiling, given, only_largest=only_largest)
        else:
            found = weights_in_regions(lattice, table, falloff, given, only_largest=only_largest)
    found = found.unflatten(0, q.shape[:2])
    return found.squeeze(2) if only_largest else found.mT


def _tokens(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, bias: Tensor | None, parts: int, signed: bool) -> Tokens:
    """The heads of all samples on one axis."""
    of_heads = None if bias is None else bias.repeat_interleave(q.shape[1], dim=0)
    q, k, v, rows = (x.flatten(0, 1) for x in (q, k, v, rows))
    return Tokens(q, k, v, rows, of_heads, parts, signed)


@attend_blocks.register_fake
def _shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    table: Tensor,
    bias: Tensor | None,
    falloff: Tensor | None,
    lattice: Sequence[int],
    parts: int = 2,
    signed: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, components, queries = q.shape
    content, position = (q.new_empty(batch, heads, n, queries) for n in (components, table.shape[-1]))
    return content, position, q.new_empty(batch, heads, *((1, queries) if falloff is None else (0, 0)))


@attend_blocks_backward.register_fake
def _backward_shapes(
    grad_content: Tensor, grad_position: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), rows.new_empty(rows.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.lattice, ctx.parts, ctx.signed = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[2])


def _backward(ctx: Any, grad_content: Tensor, grad_position: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, content, position, log_sum = ctx.saved_tensors
    with without_autocast(grad_content):
        gradients = attend_blocks_backward(
            grad_content, grad_position, *inputs, ctx.lattice, content, position, log_sum, ctx.parts, ctx.signed
        )
    return *gradients, *[None] * 6


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "blockwise attention has first derivatives only; Attention(..., implementation='dense') has all orders."
    )


attend_blocks.register_autograd(_backward, setup_context=_setup_context)
attend_blocks_backward.register_autograd(_no_second_derivative)
