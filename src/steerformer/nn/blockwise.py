"""Attention over blocks of queries, scores taken again in backward: memory grows as the number of tokens.

Tokens of queries come in reversed order. On each axis query ``n - 1 - i`` and key ``j`` are then ``n - 1 - (i + j)``
apart: entry ``i + j`` of the table. So the rows of one query against all keys are a window of the table, windows of
neighbouring queries lie one entry apart, and those of a block are gathered by a few copies of strided views.

Two operators that torch knows by name, forward and backward, so that torch.compile and torch.export take them whole.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

_BLOCK = 1 << 20  # scores of a block: enough for fast products, and not too many for caches
_LEAST_QUERIES = 32
_TINY = 1e-30  # keeps s / |s| finite; there the gradient is 0


@torch.library.custom_op("steerformer::attend_blocks", mutates_args=())
def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Content ``(batch, head, query, component)`` and position ``(query, batch, head, row)`` that queries gather.

    Args:
        q: ``(batch, head, component, query)``, queries reversed.
        k, v: ``(batch, head, component, key)``.
        rows: ``(batch, head, 2 * row, query)``: what queries see of the table, for both parts of scores.
        table: ``(*offsets, row)``.
        mask: keys that count, ``(batch, key)``.
    """
    batch, heads, components, tokens = q.shape
    content = q.new_empty(batch * heads, tokens, components)
    position = q.new_empty(tokens, batch * heads, table.shape[-1])
    values = v.flatten(0, 1).mT
    for block in _blocks(q, k, rows, table, mask):
        torch.bmm(block.weights.transpose(0, 1), values, out=content[:, block.queries])
        torch.bmm(block.weights, block.basis.mT, out=position[block.queries])
    return content.unflatten(0, (batch, heads)), position.unflatten(1, (batch, heads))


@torch.library.custom_op("steerformer::attend_blocks_backward", mutates_args=())
def attend_blocks_backward(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    table: Tensor,
    mask: Tensor | None,
    content: Tensor,
    position: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    batch, heads, components, tokens = q.shape
    grad_content, grad_position = grad_content.flatten(0, 1), grad_position.flatten(1, 2)
    # softmax's backward needs sum_j a_ij da_ij, which is what the outputs and their gradients say already
    together = (grad_content * content.flatten(0, 1)).sum(dim=-1).T + (grad_position * position.flatten(1, 2)).sum(-1)
    keys, values = k.flatten(0, 1), v.flatten(0, 1)
    into_q = q.new_empty(batch * heads, components, tokens)
    into_k, into_v = torch.zeros_like(keys), torch.zeros_like(values)
    into_rows = q.new_empty(tokens, 2 * batch * heads, table.shape[-1])
    room = None
    for block in _blocks(q, k, rows, table, mask):
        here = block.queries
        slopes = room[: len(block.weights)] if room is not None else torch.empty_like(block.weights)
        room = slopes if room is None else room
        torch.bmm(grad_position[here], block.basis, out=slopes)
        slopes.transpose(0, 1).baddbmm_(grad_content[:, here], values)
        into_v.baddbmm_(grad_content[:, here].mT, block.weights.transpose(0, 1))
        # a (da - sum a da) is the gradient of |s|, and s / |s| its direction
        slopes.sub_(together[here, :, None]).mul_(block.weights).div_(block.scores.clamp_min_(_TINY))
        pairs = block.pairs.mul_(slopes[:, None])
        by_head = pairs.flatten(0, 1).transpose(0, 1)
        into_k.baddbmm_(block.both.mT, by_head)
        into_q[:, :, here] = _gather_both(torch.bmm(by_head, keys.mT)).mT
        torch.bmm(pairs.flatten(1, 2), block.basis.mT, out=into_rows[here])
    into_rows = into_rows.view(tokens, 2, batch * heads, table.shape[-1]).permute(2, 1, 3, 0).reshape(rows.shape)
    return into_q.view(q.shape), into_k.view(k.shape), into_v.view(v.shape), into_rows


def strongest_in_blocks(q: Tensor, k: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None) -> Tensor:
    """The largest weight of each query, ``(batch, head, query)``; no gradients."""
    with torch.no_grad():
        found = torch.cat([block.weights.amax(dim=-1) for block in _blocks(q, k, rows, table, mask)])
    return found.T.unflatten(0, q.shape[:2])


class _Block(NamedTuple):
    """One block of queries against all keys; it is written over by the next."""

    queries: slice
    basis: Tensor
    """``(query, row, key)``"""
    both: Tensor
    """``q`` and ``i q``, ``(head, query * 2, component)``: their products with keys are both parts of scores."""
    pairs: Tensor
    """Scores, ``(query, part, head, key)``."""
    scores: Tensor
    """Their absolute values, ``(query, head, key)``."""
    weights: Tensor
    """``(query, head, key)``"""


def _blocks(q: Tensor, k: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None) -> Iterator[_Block]:
    batch, heads, _, tokens = q.shape
    together, depth = batch * heads, table.shape[-1]
    keys = k.flatten(0, 1)
    rows = rows.reshape(together, 2, depth, tokens).permute(3, 1, 0, 2).reshape(tokens, 2 * together, depth)
    hidden = None if mask is None else ~mask.repeat_interleave(heads, dim=0)
    size = min(tokens, max(_LEAST_QUERIES, _BLOCK // max(1, 2 * together * tokens)))
    windows = _windows(table)
    space = windows.shape[: (windows.ndim - 1) // 2]
    basis_room = q.new_empty(size, tokens, depth)
    pairs_room = q.new_empty(size, 2 * together, tokens)
    scores_room, weights_room = q.new_empty(2, size, together, tokens)
    for start in range(0, tokens, size):
        here = slice(start, min(start + size, tokens))
        count = here.stop - start
        _gather(windows, space, here, basis_room)
        basis = basis_room[:count].mT
        pairs = torch.bmm(rows[here], basis, out=pairs_room[:count])
        both = _both_parts(q.flatten(0, 1)[:, :, here].mT)
        pairs.view(2 * count, together, tokens).transpose(0, 1).baddbmm_(both, keys)
        pairs = pairs.view(count, 2, together, tokens)
        scores = torch.mul(pairs[:, 0], pairs[:, 0], out=scores_room[:count])
        scores.addcmul_(pairs[:, 1], pairs[:, 1]).sqrt_()
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        weights = torch.softmax(scores, dim=-1, out=weights_room[:count])
        if hidden is not None:
            weights.masked_fill_(hidden, 0)  # where nothing counts, softmax gave no numbers
        yield _Block(here, basis, both, pairs, scores, weights)


def _windows(table: Tensor) -> Tensor:
    """A view ``(*query, *key, row)`` of the table: the entries of reversed queries and all keys, nothing copied."""
    table = table.contiguous()
    space = [(length + 1) // 2 for length in table.shape[:-1]]
    steps = table.stride()[:-1]
    return table.as_strided((*space, *space, table.shape[-1]), (*steps, *steps, 1))


def _gather(windows: Tensor, space: torch.Size, queries: slice, out: Tensor) -> None:
    """Copy the windows of these queries, one run along the last axis at a time, into ``out (query, key, row)``."""
    start, last = queries.start, space[-1]
    while start < queries.stop:
        line, first = divmod(start, last)
        count = min(last - first, queries.stop - start)
        lead = []
        for n in reversed(space[:-1]):
            line, place = divmod(line, n)
            lead.append(place)
        source = windows[tuple(reversed(lead))][first : first + count]
        begin = start - queries.start
        out[begin : begin + count].view(source.shape).copy_(source)
        start += count


def _both_parts(q: Tensor) -> Tensor:
    """``q`` and ``i q`` in turn: ``(head, query, component)`` to ``(head, query * 2, component)``."""
    re, im = q.chunk(2, dim=-1)
    return torch.stack([torch.cat([re, im], dim=-1), torch.cat([-im, re], dim=-1)], dim=2).flatten(1, 2)


def _gather_both(both: Tensor) -> Tensor:
    """The transpose of :func:`_both_parts`, as gradients need it."""
    plain, turned = both.unflatten(1, (-1, 2)).unbind(dim=2)
    half = plain.shape[-1] // 2
    return plain + torch.cat([turned[..., half:], -turned[..., :half]], dim=-1)


@attend_blocks.register_fake
def _shapes(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    batch, heads, components, tokens = q.shape
    return q.new_empty(batch, heads, tokens, components), q.new_empty(tokens, batch, heads, table.shape[-1])


@attend_blocks_backward.register_fake
def _backward_shapes(
    grad_content: Tensor, grad_position: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(rows)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, grad_content: Tensor, grad_position: Tensor) -> tuple[Tensor | None, ...]:
    gradients = attend_blocks_backward(grad_content, grad_position, *ctx.saved_tensors)
    return *gradients, None, None


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "blockwise attention has first derivatives only; Attention(..., implementation='dense') has all of them."
    )


attend_blocks.register_autograd(_backward, setup_context=_remember)
attend_blocks_backward.register_autograd(_no_second_derivative)
