"""Attention over all pairs of voxels at once: plain expressions, and an operator that takes a third less time.

The operator keeps scores and weights of all pairs for its backward pass. It is opaque to torch.compile and
torch.export; its second derivatives come from the plain expressions.
"""

import math
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.nn.ops import without_autocast
from steerformer.nn.second_derivatives import differentiable_gradients

TINY = 1e-37  # added to squares of absolute values: scores below 3e-19 have no direction


def attend_plain(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Arguments as in :func:`attend_at_once`; differentiable also by the table.
    """
    basis = _all_pairs(table)
    pair = torch.stack([q.mT @ k, times_i(q).mT @ k], dim=2)
    weights = _softmax(_modulus(pair + torch.einsum("bhpri,ijr->bhpij", rows.unflatten(2, (2, -1)), basis)), bias)
    return torch.einsum("bhij,bhej->bhei", weights, v), torch.einsum("bhij,ijr->bhri", weights, basis)


@torch.library.custom_op("steerformer::attend_at_once", mutates_args=())
def attend_at_once(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Also returns, for backward, both parts of the scores ``(batch, head, 2, query, key)``, their moduli and the weights.

    Args:
        q: ``(batch, head, component, query)``.
        k, v: ``(batch, head, component, key)``.
        rows: ``(batch, head, 2 * row, query)``: coefficients of the table's rows in both parts of the scores.
        table: ``(*offsets, row)``.
        bias: added to the moduli of the scores, ``(batch, key)``; -inf masks a key.
    """
    batch, heads, _, tokens = q.shape
    basis = _all_pairs(table)
    pairs = torch.bmm(_both_parts(q).mT, k.flatten(0, 1))
    by_query = pairs.view(2 * batch * heads, tokens, tokens).transpose(0, 1)
    by_query.baddbmm_(_query_first(rows, 2), basis.mT)
    pairs = pairs.view(batch, heads, 2, tokens, tokens)
    re, im = pairs.unbind(dim=2)
    moduli = torch.addcmul(q.new_full((), TINY), re, re).addcmul_(im, im).sqrt_()
    weights = _softmax(moduli, bias)
    content = torch.bmm(v.flatten(0, 1), weights.flatten(0, 1).mT).view(v.shape)
    position = torch.bmm(weights.flatten(0, 1).transpose(0, 1), basis).permute(1, 2, 0).contiguous()
    return content, position.unflatten(0, (batch, heads)), pairs, moduli, weights


@torch.library.custom_op("steerformer::attend_at_once_backward", mutates_args=())
def attend_at_once_backward(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    content: Tensor,
    position: Tensor,
    pairs: Tensor,
    moduli: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    batch, heads, _, tokens = q.shape
    basis = _all_pairs(table)
    # softmax's backward subtracts sum_j a_ij da_ij from all da_ij; outputs and their gradients give that sum
    common = (grad_content * content).sum(dim=2) + (grad_position * position).sum(dim=2)
    of_content = grad_content.flatten(0, 1)
    slopes = torch.bmm(of_content.mT, v.flatten(0, 1))
    slopes.transpose(0, 1).baddbmm_(_query_first(grad_position, 1), basis.mT)
    slopes = slopes.view(weights.shape).sub_(common[..., None])
    into_v = torch.bmm(of_content, weights.flatten(0, 1))
    # a (da - sum a da) is the gradient by |s|, and s / |s| the direction of s
    slopes.mul_(weights).div_(moduli)
    of_pairs = (pairs * slopes[:, :, None]).view(batch * heads, 2 * tokens, tokens)
    into_k = torch.bmm(_both_parts(q), of_pairs)
    plain, rotated = torch.bmm(k.flatten(0, 1), of_pairs.mT).chunk(2, dim=2)
    into_q = plain - times_i(rotated)
    into_rows = torch.bmm(of_pairs.view(2 * batch * heads, tokens, tokens).transpose(0, 1), basis)
    into_rows = into_rows.view(tokens, batch, heads, 2 * table.shape[-1]).permute(1, 2, 3, 0)
    return into_q.view(q.shape), into_k.view(k.shape), into_v.view(v.shape), into_rows


def _softmax(moduli: Float[Tensor, "batch head i j"], bias: Tensor | None) -> Float[Tensor, "batch head i j"]:
    """Softmax over the keys ``j``, with a bias of each key; zeros where all are masked."""
    if bias is None:
        return moduli.softmax(dim=-1)
    masked = bias == -math.inf
    scores = moduli + bias.masked_fill(masked, 0)[:, None, None]
    masked = masked[:, None, None]
    # filled twice: softmax returns NaN where no key is valid
    return scores.masked_fill(masked, -math.inf).softmax(dim=-1).masked_fill(masked, 0)


def times_i(x: Float[Tensor, "*batch component token"]) -> Float[Tensor, "*batch component token"]:
    """Multiply by the imaginary unit; components are real parts, then imaginary parts."""
    re, im = x.chunk(2, dim=-2)
    return torch.cat([-im, re], dim=-2)


def _both_parts(q: Tensor) -> Tensor:
    """``q`` and ``i q``, ``(head, component, 2 * query)``: their products with keys are both parts of scores."""
    q = q.flatten(0, 1)
    return torch.cat([q, times_i(q)], dim=2)


def _query_first(x: Tensor, parts: int) -> Tensor:
    """``(batch, head, part * row, query)`` to ``(query, batch * head * part, row)``."""
    return x.unflatten(2, (parts, x.shape[2] // parts)).flatten(0, 2).permute(2, 0, 1).contiguous()


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


@attend_at_once.register_fake
def _shapes(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, table: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, heads, components, tokens = q.shape
    pairs = q.new_empty(batch, heads, 2, tokens, tokens)
    moduli, weights = (q.new_empty(batch, heads, tokens, tokens) for _ in range(2))
    position = q.new_empty(batch, heads, table.shape[-1], tokens)
    return q.new_empty(batch, heads, components, tokens), position, pairs, moduli, weights


@attend_at_once_backward.register_fake
def _backward_shapes(
    grad_content: Tensor, grad_position: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = q.new_empty(q.shape[-1], *q.shape[:2], 2 * table.shape[-1])
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), rows.permute(1, 2, 3, 0)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)  # zeros for all pairs


def _backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, rows, table, bias, *outputs = ctx.saved_tensors
    grad_content, grad_position = (
        torch.zeros_like(x) if grad is None else grad for x, grad in zip(outputs, gradients[:2], strict=False)
    )
    with without_autocast(q):
        if not torch.is_grad_enabled():
            return *attend_at_once_backward(grad_content, grad_position, q, k, v, table, *outputs), None, None
        again = partial(attend_plain, table=table, bias=bias)
        found = differentiable_gradients(again, (q, k, v, rows), (grad_content, grad_position))
    return *found, None, None


attend_at_once.register_autograd(_backward, setup_context=_setup_context)
