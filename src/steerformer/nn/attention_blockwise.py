"""Attention over blocks of queries; backward recomputes the scores, so memory grows linearly with the tokens.

Queries come in reversed order. On each axis query ``n - 1 - i`` and key ``j`` are then ``n - 1 - (i + j)`` apart, which
is entry ``i + j`` of the table. The rows of one query against all keys are thus a window of the table, windows of
neighboring queries lie one entry apart, and those of a block are gathered by a few copies of strided views.

Forward and backward are two custom operators, opaque to torch.compile and torch.export.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steerformer.nn.ops import without_autocast

_BLOCK = 1 << 21  # scores of a block: enough for fast matrix products, few enough for the CPU caches
_LEAST_QUERIES = 32
_TINY = 1e-19  # squares of smaller scores are 0 in float32, so these scores have no direction


@torch.library.custom_op("steerformer::attend_blocks", mutates_args=())
def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Weighted means of content ``(batch, head, query, component)`` and position ``(query, batch, head, row)``.

    Args:
        q: ``(batch, head, component, query)``, queries reversed.
        k, v: ``(batch, head, component, key)``.
        rows: ``(batch, head, 2 * row, query)``: coefficients of the table's rows in both parts of the scores.
        table: ``(*offsets, row)``.
        mask: ``True`` for valid keys, ``(batch, key)``.
    """
    batch, heads, components, tokens = q.shape
    content = q.new_empty(batch * heads, tokens, components)
    position = q.new_empty(tokens, batch * heads, table.shape[-1])
    values = v.flatten(0, 1).mT
    for block in _blocks(q, k, rows, table, mask):
        content[:, block.queries] = torch.bmm(block.weights, values)
        torch.bmm(block.weights.transpose(0, 1), block.basis.mT, out=position[block.queries])
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
    # softmax's backward subtracts sum_j a_ij da_ij from all da_ij; outputs and their gradients give that sum
    common = (grad_content * content.flatten(0, 1)).sum(dim=-1).T + (grad_position * position.flatten(1, 2)).sum(-1)
    grad_position = torch.cat([grad_position, -common[..., None]], dim=-1)
    keys, values = k.flatten(0, 1), v.flatten(0, 1)
    into_q = q.new_empty(batch * heads, components, tokens)
    into_k, into_v = keys.new_zeros(keys.shape), values.new_zeros(values.shape)
    into_rows = q.new_empty(tokens, 2 * batch * heads, table.shape[-1])
    slopes_buffer = None
    for block in _blocks(q, k, rows, table, mask):
        here = block.queries
        slopes_buffer = torch.empty_like(block.weights) if slopes_buffer is None else slopes_buffer
        slopes = torch.bmm(grad_content[:, here], values, out=_part(slopes_buffer, *block.weights.shape))
        positions = torch.bmm(grad_position[here], block.basis_and_one, out=block.buffer)
        slopes.add_(positions.transpose(0, 1))
        into_v.baddbmm_(grad_content[:, here].mT, block.weights)
        # a (da - sum a da) is the gradient by |s|, and s / |s| the direction of s
        slopes.mul_(block.weights).div_(block.scores.clamp_min_(_TINY))
        pairs = block.pairs.mul_(slopes[:, None])
        into_k.baddbmm_(block.both.mT, pairs.flatten(1, 2))
        into_q[:, :, here] = _gather_both(torch.bmm(pairs.flatten(1, 2), keys.mT)).mT
        torch.bmm(pairs.flatten(0, 1).transpose(0, 1), block.basis.mT, out=into_rows[here])
    into_rows = into_rows.permute(1, 2, 0).reshape(rows.shape).contiguous()
    return into_q.view(q.shape), into_k.view(k.shape), into_v.view(v.shape), into_rows


def weights_in_blocks(
    q: Tensor, k: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None, *, only_largest: bool
) -> Tensor:
    """Attention weights of all pairs, ``(batch, head, query, key)``, or the largest of each query; no gradients."""
    with torch.no_grad():
        blocks = (block.weights for block in _blocks(q, k, rows, table, mask))
        found = [weights.amax(dim=-1) if only_largest else weights.clone() for weights in blocks]
    return torch.cat(found, dim=1).unflatten(0, q.shape[:2])


class _Block(NamedTuple):
    """One block of queries against all keys; the next block overwrites it.

    Products write into contiguous buffers; otherwise torch would multiply one head after the other.
    """

    queries: slice
    basis_and_one: Tensor
    """``(query, row, key)``, and a last row of ones."""
    both: Tensor
    """``q`` and ``i q``, ``(head, 2 * query, component)``: their products with keys are both parts of scores."""
    pairs: Tensor
    """Scores, ``(head, part, query, key)``."""
    scores: Tensor
    """Their absolute values, ``(head, query, key)``."""
    weights: Tensor
    """``(head, query, key)``"""
    buffer: Tensor
    """``(query, head, key)``, scratch memory of backward."""

    @property
    def basis(self) -> Tensor:
        return self.basis_and_one[:, :-1]


def _blocks(q: Tensor, k: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None) -> Iterator[_Block]:
    batch, heads, _, tokens = q.shape
    together, depth = batch * heads, table.shape[-1]
    keys, both = k.flatten(0, 1), _both_parts(q.flatten(0, 1).mT)
    rows = rows.reshape(2 * together, depth, tokens).permute(2, 0, 1).contiguous()
    hidden = None if mask is None else ~mask.repeat_interleave(heads, dim=0)[:, None]
    size = min(tokens, max(_LEAST_QUERIES, _BLOCK // (max(2 * together, depth + 1) * tokens)))
    windows = _windows(table)
    pairs_buffer, positions_buffer = q.new_empty(2, 2 * together * size * tokens)
    scores_buffer, weights_buffer = q.new_empty(2, together * size * tokens)
    basis_buffer = q.new_empty(size, tokens, depth + 1)
    for start in range(0, tokens, size):
        here = slice(start, min(start + size, tokens))
        count = here.stop - start
        basis = _gather(windows, here, basis_buffer[:count]).mT
        both_here = both[:, :, here].flatten(1, 2)
        pairs = torch.bmm(both_here, keys, out=_part(pairs_buffer, together, 2 * count, tokens))
        positions = torch.bmm(rows[here], basis[:, :-1], out=_part(positions_buffer, count, 2 * together, tokens))
        pairs.view(2 * together, count, tokens).add_(positions.transpose(0, 1))
        pairs = pairs.view(together, 2, count, tokens)
        scores = torch.mul(pairs[:, 0], pairs[:, 0], out=_part(scores_buffer, together, count, tokens))
        scores.addcmul_(pairs[:, 1], pairs[:, 1]).sqrt_()
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        weights = torch.softmax(scores, dim=-1, out=_part(weights_buffer, together, count, tokens))
        if hidden is not None:
            weights.masked_fill_(hidden, 0)  # softmax returns NaN where no key is valid
        yield _Block(here, basis, both_here, pairs, scores, weights, _part(positions_buffer, count, together, tokens))


def _part(buffer: Tensor, *shape: int) -> Tensor:
    return buffer.view(-1)[: math.prod(shape)].view(shape)


def _windows(table: Tensor) -> Tensor:
    """View ``(*query, *key, row)`` of the table for reversed queries and all keys; the last row is ones."""
    table = F.pad(table, (0, 1), value=1.0).contiguous()
    space = [(length + 1) // 2 for length in table.shape[:-1]]
    steps = table.stride()[:-1]
    return table.as_strided((*space, *space, table.shape[-1]), (*steps, *steps, 1))


def _gather(windows: Tensor, queries: slice, out: Tensor) -> Tensor:
    """Copy the windows of these queries into ``out (query, key, row)``, one box of neighboring queries at a time."""
    space = windows.shape[: (windows.ndim - 1) // 2]
    start = queries.start
    while start < queries.stop:
        place = [start // math.prod(space[axis + 1 :]) % n for axis, n in enumerate(space)]
        for axis, n in enumerate(space):
            box = math.prod(space[axis + 1 :])
            steps = min(n - place[axis], (queries.stop - start) // box)
            if steps and start % box == 0:
                break
        source = windows[tuple(place[:axis])][place[axis] : place[axis] + steps]
        begin = start - queries.start
        out[begin : begin + steps * box].view(source.shape).copy_(source)
        start += steps * box
    return out


def _both_parts(q: Tensor) -> Tensor:
    """``q`` and ``i q``: ``(head, query, component)`` to ``(head, 2, query, component)``."""
    re, im = q.chunk(2, dim=-1)
    return torch.stack([torch.cat([re, im], dim=-1), torch.cat([-im, re], dim=-1)], dim=1)


def _gather_both(both: Tensor) -> Tensor:
    """The transpose of :func:`_both_parts`, for gradients."""
    plain, times_i = both.chunk(2, dim=1)
    half = plain.shape[-1] // 2
    return plain + torch.cat([times_i[..., half:], -times_i[..., :half]], dim=-1)


@attend_blocks.register_fake
def _shapes(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    batch, heads, components, tokens = q.shape
    return q.new_empty(batch, heads, tokens, components), q.new_empty(tokens, batch, heads, table.shape[-1])


@attend_blocks_backward.register_fake
def _backward_shapes(
    grad_content: Tensor, grad_position: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), rows.new_empty(rows.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, grad_content: Tensor, grad_position: Tensor) -> tuple[Tensor | None, ...]:
    with without_autocast(grad_content):
        gradients = attend_blocks_backward(grad_content, grad_position, *ctx.saved_tensors)
    return *gradients, None, None


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "blockwise attention has first derivatives only; Attention(..., implementation='dense') has all orders."
    )


attend_blocks.register_autograd(_backward, setup_context=_setup_context)
attend_blocks_backward.register_autograd(_no_second_derivative)
