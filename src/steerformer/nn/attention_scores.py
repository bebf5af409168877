"""Attention over tiles of scores; backward recomputes them, so memory grows linearly with the tokens.

Forward accumulates the softmax over tiles of keys: sums of exponentials relative to the largest score so far. Backward
finds the weights of a tile from the logarithms of the final sums. All scores are multiplied by log2(e), because powers
of 2 take a third of the time of powers of e. Scores have two parts or one, and may be signed: see
:mod:`~steerformer.nn.attention_dense`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steerformer.nn.attention_dense import TINY
from steerformer.nn.attention_tiles import Block, Keys, Tiling

_LOG2_E = math.log2(math.e)
_LOWEST = -1e30  # below all scores, and finite: -inf minus it is -inf, as for a masked key


class Tokens(NamedTuple):
    """Queries, keys and values of the heads of all samples."""

    q: Tensor
    """``(head, component, query)``."""
    k: Tensor
    """``(head, component, key)``."""
    v: Tensor
    rows: Tensor
    """Coefficients of the table's rows in each part of the scores, ``(head, part * row, query)``."""
    bias: Tensor | None
    """Added to the moduli of the scores, ``(head, key)``; -inf masks a key."""
    parts: int
    """2 for complex scores, 1 for real ones."""
    signed: bool
    """Whether the softmax is that of the real scores instead of their moduli."""


def forward_in_tiles(tiling: Tiling, given: Tokens) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted means of content ``(head, component, query)`` and position ``(head, row, query)``.

    Also returns, for backward, the binary logarithm of the sum of exponentials, ``(head, 1, query)``.
    """
    scores, values = _Scores(tiling, given), given.v.contiguous()
    heads, components, queries = given.q.shape
    content, position, log_sum = (values.new_empty(heads, n, queries) for n in (components, tiling.depth, 1))
    for block in tiling.blocks():
        n, g = block.num_queries, block.num_heads
        of_content, of_rows = values.new_zeros(g, components, n), values.new_zeros(n, g, tiling.depth + 1)
        largest = values.new_full((n, g, 1), _LOWEST)
        coefficients = scores.queries(block)
        for keys in tiling.keys:
            weights = scores.add_bias(scores.tile(block, coefficients, keys)[1], block, keys)
            new_largest = torch.maximum(largest, weights.amax(dim=-1, keepdim=True))
            weights.sub_(new_largest).exp2_()
            if keys.tokens.start:  # earlier sums are relative to the largest score until then
                factor = torch.exp2(largest - new_largest)
                of_rows.mul_(factor)
                of_content.mul_(_head_first(factor))
            largest = new_largest
            block.times_transposed_table(weights, keys, add_to=of_rows)
            of_content.baddbmm_(values[block.heads, :, keys.tokens], weights.permute(1, 2, 0))
        of_position, total = of_rows.split([tiling.depth, 1], dim=-1)  # the table ends with ones: the sum of all
        total = total.clamp_min(1)  # the largest term of a sum is 1, and without any valid key the sum is 0
        block.put(content, of_content.mul_(_head_first(total.reciprocal())))
        block.put(position, _head_first(of_position.div_(total)))
        block.put(log_sum, _head_first(total.log2_().add_(largest)))
    return content, position, log_sum


def backward_in_tiles(
    tiling: Tiling,
    given: Tokens,
    grad_content: Tensor,
    grad_position: Tensor,
    content: Tensor,
    position: Tensor,
    log_sum: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    scores, values = _Scores(tiling, given), given.v.contiguous()
    # softmax's backward subtracts sum_j a_ij da_ij from all da_ij; outputs and their gradients give that sum
    common = (grad_content * content).sum(dim=1, keepdim=True) + (grad_position * position).sum(dim=1, keepdim=True)
    grad_position = torch.cat([grad_position, -common], dim=1)
    into_q, into_rows = (values.new_empty(x.shape) for x in (given.q, given.rows))
    into_k, into_v = torch.zeros_like(values), torch.zeros_like(values)
    slopes_buffer = tiling.new_buffer(values)
    for block in tiling.blocks():
        n, g = block.num_queries, block.num_heads
        both, coefficients = queries = scores.queries(block)
        content_here, position_here = block.take(grad_content), _query_first(block.take(grad_position))
        log_sum_here = _query_first(block.take(log_sum))
        of_both, of_rows = torch.zeros_like(both), torch.zeros_like(coefficients)
        for keys in tiling.keys:
            pairs, moduli = scores.tile(block, queries, keys)
            heads_keys = (block.heads, slice(None), keys.tokens)
            slopes = block.part(slopes_buffer, keys)
            block.times_table(position_here, keys, out=slopes)
            slopes = slopes[..., : keys.number]
            slopes.transpose(0, 1).baddbmm_(content_here.mT, values[heads_keys])
            if not given.signed:  # s / |s| is the direction of s
                slopes.div_(moduli)
            weights = scores.add_bias(moduli, block, keys).sub_(log_sum_here).exp2_()
            into_v[heads_keys].baddbmm_(content_here, weights.transpose(0, 1))
            slopes.mul_(weights)  # a (da - sum a da) is the gradient by |s|, or by signed scores
            if given.signed:
                pairs = slopes
            else:
                pairs = pairs[..., : keys.number]
                pairs.unflatten(1, (given.parts, g)).mul_(slopes[:, None])
            by_head = _by_head(pairs, given.parts)
            into_k[heads_keys].baddbmm_(both, by_head)
            of_both.baddbmm_(scores.keys[heads_keys], by_head.mT)
            block.times_transposed_table(pairs, keys, add_to=of_rows)
        block.put(into_q, _gather_parts(of_both, given.parts))
        block.put(into_rows, of_rows.view(n, given.parts, g, tiling.depth).permute(2, 1, 3, 0).flatten(1, 2))
    return into_q, into_k.div_(_LOG2_E), into_v, into_rows


def weights_in_tiles(tiling: Tiling, given: Tokens, *, only_largest: bool) -> Tensor:
    """Attention weights of all pairs, ``(head, key, query)``, or the largest of each query, ``(head, 1, query)``."""
    scores, (keys,) = _Scores(tiling, given), tiling.keys
    found = scores.keys.new_empty(len(scores.keys), 1 if only_largest else given.k.shape[-1], given.q.shape[-1])
    for block in tiling.blocks():
        weights = scores.add_bias(scores.tile(block, scores.queries(block), keys)[1], block, keys)
        weights.sub_(weights.amax(dim=-1, keepdim=True).clamp_min_(_LOWEST)).exp2_()
        weights.div_(weights.sum(dim=-1, keepdim=True).clamp_min_(1))
        block.put(found, _head_first(weights.amax(dim=-1, keepdim=True) if only_largest else weights))
    return found


class _Scores:
    """Scores, one tile at a time; each tile overwrites the one before."""

    def __init__(self, tiling: Tiling, given: Tokens) -> None:
        self.keys, self._rows, self._depth = given.k.contiguous(), given.rows, tiling.depth
        self._parts, self._signed, self._both = given.parts, given.signed, _all_parts(given.q, given.parts)
        bias = given.bias
        if bias is not None:
            bias = _LOG2_E * bias
            self._masked = bias == -math.inf
            bias = bias.masked_fill(self._masked, 0)
        self._bias = bias
        self._pairs = tiling.new_buffer(given.k, given.parts)
        self._moduli = self._pairs if given.signed else tiling.new_buffer(given.k)
        self._tiny = given.k.new_full((), TINY)

    def queries(self, block: Block) -> tuple[Tensor, Tensor]:
        """Parts of ``q``, ``(head, component, query * part)``, and coefficients ``(query, part * head, row)``."""
        rows = block.take(self._rows).unflatten(1, (self._parts, self._depth))
        return block.take(self._both).flatten(2), (_LOG2_E * rows).permute(3, 1, 0, 2).flatten(1, 2)

    def tile(self, block: Block, queries: tuple[Tensor, Tensor], keys: Keys) -> tuple[Tensor, Tensor]:
        """Scores, part by part, ``(query, part * head, row)``, and moduli ``(query, head, key)``.

        Signed scores are returned in place of the moduli, in the same memory.
        """
        both, coefficients = queries
        pairs = block.part(self._pairs, keys, parts=self._parts)
        block.times_table(coefficients, keys, out=pairs)
        _by_head(pairs[..., : keys.number], self._parts).baddbmm_(both.mT, self.keys[block.heads, :, keys.tokens])
        re, *im = pairs[..., : keys.number].chunk(self._parts, dim=1)
        if self._signed:
            return pairs, re
        moduli = block.part(self._moduli, keys)[..., : keys.number]
        torch.addcmul(self._tiny, re, re, out=moduli)
        return pairs, (moduli.addcmul_(im[0], im[0]) if im else moduli).sqrt_()

    def add_bias(self, moduli: Tensor, block: Block, keys: Keys) -> Tensor:
        """Moduli with the bias of each key, in place."""
        if self._bias is None:
            return moduli
        here = block.heads, keys.tokens
        return moduli.add_(self._bias[here]).masked_fill_(self._masked[here], -math.inf)


def _by_head(pairs: Tensor, parts: int) -> Tensor:
    """``(query, part * head, key)`` to ``(head, query * part, key)``, without copies."""
    return pairs.unflatten(1, (parts, -1)).flatten(0, 1).transpose(0, 1)


def _head_first(x: Tensor) -> Tensor:
    """``(query, head, component)`` to ``(head, component, query)``."""
    return x.permute(1, 2, 0).contiguous()


def _query_first(x: Tensor) -> Tensor:
    """``(head, component, query)`` to ``(query, head, component)``."""
    return x.permute(2, 0, 1).contiguous()


def _all_parts(q: Tensor, parts: int) -> Tensor:
    """``q`` and ``i q``, or ``q`` alone, times log2(e): ``(head, component, query)`` with the part as last axis."""
    if parts == 1:
        return _LOG2_E * q[..., None]
    both, half = q.new_empty(*q.shape, 2), q.shape[1] // 2
    re, im = q.chunk(2, dim=1)
    torch.mul(q, _LOG2_E, out=both[..., 0])
    torch.mul(im, -_LOG2_E, out=both[:, :half, :, 1])
    torch.mul(re, _LOG2_E, out=both[:, half:, :, 1])
    return both


def _gather_parts(both: Tensor, parts: int) -> Tensor:
    """The transpose of :func:`_all_parts`, for gradients: ``(head, component, query * part)`` to one column a query."""
    if parts == 1:
        return both
    plain, times_i = both.unflatten(2, (-1, 2)).unbind(dim=-1)
    re, im = times_i.chunk(2, dim=1)
    return plain + torch.cat([im, -re], dim=1)
