"""Attention over tiles of scores; backward recomputes them, so memory grows linearly with the tokens.

Forward accumulates the softmax over tiles of keys: sums of exponentials relative to the largest score so far. Backward
finds the weights of a tile from the logarithms of the final sums. All scores are multiplied by log2(e), because powers
of 2 take a third of the time of powers of e.

Forward and backward are two custom operators, opaque to torch.compile and torch.export.
"""

import math
from typing import Any

import torch
from torch import Tensor

from steerformer.nn.attention_dense import TINY
from steerformer.nn.attention_tiles import Block, Keys, Tiling
from steerformer.nn.ops import without_autocast

_LOG2_E = math.log2(math.e)
_LOWEST = -1e30  # below all scores, and finite: -inf minus it is -inf, as for a masked key


@torch.library.custom_op("steerformer::attend_blocks", mutates_args=())
def attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Also returns, for backward, the binary logarithm of the sum of exponentials, ``(batch, head, 1, query)``.

    Args:
        q: ``(batch, head, component, query)``.
        k, v: ``(batch, head, component, key)``.
        rows: ``(batch, head, 2 * row, query)``: coefficients of the table's rows in both parts of the scores.
        table: ``(*offsets, row)``.
        bias: added to the moduli of the scores, ``(batch, key)``; -inf masks a key.
    """
    scores, values = _Scores(q, k, rows, table, bias), v.flatten(0, 1).contiguous()
    heads, components, tokens = values.shape
    depth = table.shape[-1]
    content, position, log_sum = (values.new_empty(heads, size, tokens) for size in (components, depth, 1))
    for block in scores.tiling.blocks():
        n, g = block.num_queries, block.num_heads
        of_content, of_rows = values.new_zeros(g, components, n), values.new_zeros(n, g, depth + 1)
        largest = values.new_full((n, g, 1), _LOWEST)
        queries = scores.queries(block)
        for keys in scores.tiling.keys:
            weights = scores.add_bias(scores.tile(block, queries, keys)[1], block, keys)
            new_largest = torch.maximum(largest, weights.amax(dim=-1, keepdim=True))
            weights.sub_(new_largest).exp2_()
            if keys.tokens.start:  # earlier sums are relative to the largest score until then
                factor = torch.exp2(largest - new_largest)
                of_rows.mul_(factor)
                of_content.mul_(_head_first(factor))
            largest = new_largest
            block.times_transposed_table(weights, keys, add_to=of_rows)
            of_content.baddbmm_(values[block.heads, :, keys.tokens], weights.permute(1, 2, 0))
        of_position, total = of_rows.split([depth, 1], dim=-1)  # the last row of the table has ones: the sum of all
        total = total.clamp_min(1)  # the largest term of a sum is 1, and without any valid key the sum is 0
        block.put(content, of_content.mul_(_head_first(total.reciprocal())))
        block.put(position, _head_first(of_position.div_(total)))
        block.put(log_sum, _head_first(total.log2_().add_(largest)))
    return content.view(v.shape), *(x.unflatten(0, v.shape[:2]) for x in (position, log_sum))


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
    content: Tensor,
    position: Tensor,
    log_sum: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    scores, values = _Scores(q, k, rows, table, bias), v.flatten(0, 1).contiguous()
    # softmax's backward subtracts sum_j a_ij da_ij from all da_ij; outputs and their gradients give that sum
    common = (grad_content * content).sum(dim=2, keepdim=True) + (grad_position * position).sum(dim=2, keepdim=True)
    grad_position = torch.cat([grad_position, -common], dim=2).flatten(0, 1)
    grad_content, log_sum = grad_content.flatten(0, 1), log_sum.flatten(0, 1)
    into_q, into_rows = torch.empty_like(values), values.new_empty(len(values), *rows.shape[2:])
    into_k, into_v = torch.zeros_like(values), torch.zeros_like(values)
    slopes_buffer = scores.tiling.new_buffer(values)
    for block in scores.tiling.blocks():
        n, g = block.num_queries, block.num_heads
        both, coefficients = queries = scores.queries(block)
        content_here, position_here = block.take(grad_content), _query_first(block.take(grad_position))
        log_sum_here = _query_first(block.take(log_sum))
        of_both, of_rows = torch.zeros_like(both), torch.zeros_like(coefficients)
        for keys in scores.tiling.keys:
            pairs, moduli = scores.tile(block, queries, keys)
            heads_keys = (block.heads, slice(None), keys.tokens)
            slopes = block.part(slopes_buffer, keys)
            block.times_table(position_here, keys, out=slopes)
            slopes = slopes[..., : keys.number]
            slopes.transpose(0, 1).baddbmm_(content_here.mT, values[heads_keys])
            # a (da - sum a da) is the gradient by |s|, and s / |s| the direction of s
            slopes.div_(moduli)
            weights = scores.add_bias(moduli, block, keys).sub_(log_sum_here).exp2_()
            into_v[heads_keys].baddbmm_(content_here, weights.transpose(0, 1))
            slopes.mul_(weights)
            pairs = pairs[..., : keys.number]
            pairs.unflatten(1, (2, g)).mul_(slopes[:, None])
            by_head = _by_head(pairs)
            into_k[heads_keys].baddbmm_(both, by_head)
            of_both.baddbmm_(scores.keys[heads_keys], by_head.mT)
            block.times_transposed_table(pairs, keys, add_to=of_rows)
        block.put(into_q, _gather_both(of_both))
        block.put(into_rows, of_rows.view(n, 2, g, -1).permute(2, 1, 3, 0).flatten(1, 2))
    into_k.div_(_LOG2_E)
    return into_q.view(q.shape), into_k.view(k.shape), into_v.view(v.shape), into_rows.view(rows.shape)


def weights_in_blocks(
    q: Tensor, k: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None, *, only_largest: bool
) -> Tensor:
    """Attention weights of all pairs, ``(batch, head, query, key)``, or the largest of each query; no gradients."""
    with torch.no_grad():
        scores = _Scores(q, k, rows, table, bias, all_keys=True)
        found = scores.keys.new_empty(len(scores.keys), 1 if only_largest else q.shape[-1], q.shape[-1])
        for block in scores.tiling.blocks():
            keys = scores.tiling.keys[0]
            weights = scores.add_bias(scores.tile(block, scores.queries(block), keys)[1], block, keys)
            weights.sub_(weights.amax(dim=-1, keepdim=True).clamp_min_(_LOWEST)).exp2_()
            weights.div_(weights.sum(dim=-1, keepdim=True).clamp_min_(1))
            block.put(found, _head_first(weights.amax(dim=-1, keepdim=True) if only_largest else weights))
    found = found.unflatten(0, q.shape[:2])
    return found.squeeze(2) if only_largest else found.mT


class _Scores:
    """Scores, one tile at a time; each tile overwrites the one before."""

    def __init__(
        self, q: Tensor, k: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None, *, all_keys: bool = False
    ) -> None:
        self.tiling = Tiling(table, q.shape[0] * q.shape[1], all_keys=all_keys)
        self.keys, self._rows = k.flatten(0, 1).contiguous(), rows.flatten(0, 1).unflatten(1, (2, -1))
        self._both = _both_parts(q.flatten(0, 1))
        if bias is not None:
            bias = _LOG2_E * bias.repeat_interleave(q.shape[1], dim=0)
            self._masked = bias == -math.inf
            bias = bias.masked_fill(self._masked, 0)
        self._bias = bias
        self._pairs, self._moduli = (self.tiling.new_buffer(k, parts) for parts in (2, 1))
        self._tiny = k.new_full((), TINY)

    def queries(self, block: Block) -> tuple[Tensor, Tensor]:
        """``q`` and ``i q`` ``(head, component, 2 * query)`` and coefficients ``(query, 2 * head, row)`` of a block."""
        rows = block.take(self._rows.flatten(1, 2)).unflatten(1, (2, -1))
        return block.take(self._both).flatten(2), (_LOG2_E * rows).permute(3, 1, 0, 2).flatten(1, 2)

    def tile(self, block: Block, queries: tuple[Tensor, Tensor], keys: Keys) -> tuple[Tensor, Tensor]:
        """Scores, real parts and imaginary parts, ``(query, 2 * head, row)``, and moduli ``(query, head, key)``."""
        both, coefficients = queries
        pairs = block.part(self._pairs, keys, parts=2)
        block.times_table(coefficients, keys, out=pairs)
        _by_head(pairs[..., : keys.number]).baddbmm_(both.mT, self.keys[block.heads, :, keys.tokens])
        re, im = pairs[..., : keys.number].chunk(2, dim=1)
        moduli = block.part(self._moduli, keys)[..., : keys.number]
        torch.addcmul(self._tiny, re, re, out=moduli).addcmul_(im, im).sqrt_()
        return pairs, moduli

    def add_bias(self, moduli: Tensor, block: Block, keys: Keys) -> Tensor:
        """Moduli with the bias of each key, in place."""
        if self._bias is None:
            return moduli
        here = block.heads, keys.tokens
        return moduli.add_(self._bias[here]).masked_fill_(self._masked[here], -math.inf)


def _by_head(pairs: Tensor) -> Tensor:
    """``(query, 2 * head, key)`` to ``(head, 2 * query, key)``, without copies."""
    return pairs.unflatten(1, (2, -1)).flatten(0, 1).transpose(0, 1)


def _head_first(x: Tensor) -> Tensor:
    """``(query, head, component)`` to ``(head, component, query)``."""
    return x.permute(1, 2, 0).contiguous()


def _query_first(x: Tensor) -> Tensor:
    """``(head, component, query)`` to ``(query, head, component)``."""
    return x.permute(2, 0, 1).contiguous()


def _both_parts(q: Tensor) -> Tensor:
    """``q`` and ``i q``, times log2(e): ``(head, component, query)`` to ``(head, component, query, 2)``."""
    both, half = q.new_empty(*q.shape, 2), q.shape[1] // 2
    re, im = q.chunk(2, dim=1)
    torch.mul(q, _LOG2_E, out=both[..., 0])
    torch.mul(im, -_LOG2_E, out=both[:, :half, :, 1])
    torch.mul(re, _LOG2_E, out=both[:, half:, :, 1])
    return both


def _gather_both(both: Tensor) -> Tensor:
    """The transpose of :func:`_both_parts`, for gradients: ``(head, component, 2 * query)`` to one column a query."""
    plain, times_i = both.unflatten(2, (-1, 2)).unbind(dim=-1)
    re, im = times_i.chunk(2, dim=1)
    return plain + torch.cat([im, -re], dim=1)


@attend_blocks.register_fake
def _shapes(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, components, tokens = v.shape
    content, position, log_sum = (v.new_empty(batch, heads, n, tokens) for n in (components, table.shape[-1], 1))
    return content, position, log_sum


@attend_blocks_backward.register_fake
def _backward_shapes(
    grad_content: Tensor, grad_position: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), rows.new_empty(rows.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[2])


def _backward(ctx: Any, grad_content: Tensor, grad_position: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    with without_autocast(grad_content):
        gradients = attend_blocks_backward(grad_content, grad_position, *ctx.saved_tensors)
    return *gradients, None, None


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "blockwise attention has first derivatives only; Attention(..., implementation='dense') has all orders."
    )


attend_blocks.register_autograd(_backward, setup_context=_setup_context)
attend_blocks_backward.register_autograd(_no_second_derivative)
