"""Attention over all pairs of voxels at once: plain expressions, and an operator that takes a third less time.

Scores have two parts, real and imaginary, or only the real part. The softmax is that of their absolute values, or with
``signed`` that of real scores themselves.

The operator keeps scores and weights of all pairs for its backward pass. It is opaque to torch.compile; its
second derivatives come from the plain expressions, as do the graphs of torch.export.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.nn.offsets import from_integers, pair_entries
from steerformer.nn.ops import without_autocast
from steerformer.nn.second_derivatives import differentiable_gradients

TINY = 1e-37  # added to squares of absolute values: scores below 3e-19 have no direction


def attend_plain(
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
) -> tuple[Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Arguments as in :func:`attend_at_once`; differentiable also by the table.
    """
    basis, of_pairs = _all_pairs(table, falloff, lattice)
    pair = torch.stack([q.mT @ k, times_i(q).mT @ k] if parts == 2 else [q.mT @ k], dim=2)
    pair = pair + torch.einsum("bhpri,ijr->bhpij", rows.unflatten(2, (parts, table.shape[-1])), basis)
    weights = _softmax(pair[:, :, 0] if signed else _modulus(pair), bias, of_pairs)
    return torch.einsum("bhij,bhej->bhei", weights, v), torch.einsum("bhij,ijr->bhri", weights, basis)


@torch.library.custom_op("steerformer::attend_at_once", mutates_args=())
def attend_at_once(
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weighted means of content ``(batch, head, component, query)`` and position ``(batch, head, row, query)``.

    Also returns, for backward, the parts of the scores ``(batch, head, part, query, key)``, their moduli, which are
    empty for signed scores, and the weights.

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
    basis, of_pairs = _all_pairs(table, falloff, lattice)
    softmax = partial(_softmax, bias=bias, of_pairs=of_pairs)
    return forward_of_pairs(q, k, v, rows, basis, softmax, parts, signed)


@torch.library.custom_op("steerformer::attend_at_once_backward", mutates_args=())
def attend_at_once_backward(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    lattice: Sequence[int],
    content: Tensor,
    position: Tensor,
    pairs: Tensor,
    moduli: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows."""
    basis, _ = _all_pairs(table, None, lattice)
    return backward_of_pairs(grad_content, grad_position, q, k, v, basis, content, position, pairs, moduli, weights)


def forward_of_pairs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    basis: Tensor,
    softmax: Callable[[Tensor], Tensor],
    parts: int,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Content and position, then what :func:`attend_at_once` keeps for backward, for given pairs.

    Args:
        q, k, v, rows, parts, signed: as in :func:`attend_at_once`.
        basis: the table's rows of every query and key, ``(query, key, row)``.
        softmax: takes moduli, or signed scores, ``(batch, head, query, key)`` to weights.
    """
    batch, heads, components, queries = q.shape
    keys = k.shape[3]
    pairs = torch.bmm(_all_parts(q, parts).mT, k.flatten(0, 1))
    by_query = pairs.view(parts * batch * heads, queries, keys).transpose(0, 1)
    by_query.baddbmm_(_query_first(rows, parts), basis.mT)
    pairs = pairs.view(batch, heads, parts, queries, keys)
    moduli = q.new_empty(0)
    if not signed:
        re, *im = pairs.unbind(dim=2)
        moduli = torch.addcmul(q.new_full((), TINY), re, re)
        moduli = (moduli.addcmul_(im[0], im[0]) if im else moduli).sqrt_()
    weights = softmax(pairs[:, :, 0] if signed else moduli)
    content = torch.bmm(v.flatten(0, 1), weights.flatten(0, 1).mT).view(batch, heads, components, queries)
    position = torch.bmm(weights.flatten(0, 1).transpose(0, 1), basis).permute(1, 2, 0).contiguous()
    return content, position.unflatten(0, (batch, heads)), pairs, moduli, weights


def backward_of_pairs(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    basis: Tensor,
    content: Tensor,
    position: Tensor,
    pairs: Tensor,
    moduli: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and rows, from the results of :func:`forward_of_pairs`."""
    batch, heads, parts, queries, keys = pairs.shape
    # softmax's backward subtracts sum_j a_ij da_ij from all da_ij; outputs and their gradients give that sum
    common = (grad_content * content).sum(dim=2) + (grad_position * position).sum(dim=2)
    of_content = grad_content.flatten(0, 1)
    slopes = torch.bmm(of_content.mT, v.flatten(0, 1))
    slopes.transpose(0, 1).baddbmm_(_query_first(grad_position, 1), basis.mT)
    slopes = slopes.view(weights.shape).sub_(common[..., None])
    into_v = torch.bmm(of_content, weights.flatten(0, 1))
    slopes.mul_(weights)  # a (da - sum a da) is the gradient by |s|, or by signed scores
    if moduli.numel():  # s / |s| is the direction of s
        slopes = pairs * slopes.div_(moduli)[:, :, None]
    of_pairs = slopes.view(batch * heads, parts * queries, keys)
    into_k = torch.bmm(_all_parts(q, parts), of_pairs)
    into_q, *rotated = torch.bmm(k.flatten(0, 1), of_pairs.mT).chunk(parts, dim=2)
    into_q = into_q - times_i(rotated[0]) if rotated else into_q
    into_rows = torch.bmm(of_pairs.view(parts * batch * heads, queries, keys).transpose(0, 1), basis)
    into_rows = into_rows.view(queries, batch, heads, parts * basis.shape[-1]).permute(1, 2, 3, 0)
    return into_q.view(q.shape), into_k.view(k.shape), into_v.view(v.shape), into_rows


def _softmax(
    moduli: Float[Tensor, "batch head i j"], bias: Tensor | None, of_pairs: Float[Tensor, "i j"] | None
) -> Float[Tensor, "batch head i j"]:
    """Softmax over the keys ``j``, with a bias of each key and of each pair; zeros where all are masked."""
    biases = [] if bias is None else [bias[:, None, None]]
    biases += [] if of_pairs is None else [of_pairs[None, None]]
    if not biases:
        return moduli.softmax(dim=-1)
    masks = [added == -math.inf for added in biases]
    for added, mask in zip(biases, masks, strict=True):
        moduli = moduli + added.masked_fill(mask, 0)
    masked = masks[0] if len(masks) == 1 else masks[0] | masks[1]
    # filled twice: softmax returns NaN where no key is valid
    return moduli.masked_fill(masked, -math.inf).softmax(dim=-1).masked_fill(masked, 0)


def times_i(x: Float[Tensor, "*batch component token"]) -> Float[Tensor, "*batch component token"]:
    """Multiply by the imaginary unit; components are real parts, then imaginary parts."""
    re, im = x.chunk(2, dim=-2)
    return torch.cat([-im, re], dim=-2)


def _all_parts(q: Tensor, parts: int) -> Tensor:
    """``q`` and ``i q``, ``(head, component, 2 * query)``: their products with keys are both parts of scores.

    For the real part alone, ``q``.
    """
    q = q.flatten(0, 1)
    return torch.cat([q, times_i(q)], dim=2) if parts == 2 else q


def _query_first(x: Tensor, parts: int) -> Tensor:
    """``(batch, head, part * row, query)`` to ``(query, batch * head * part, row)``."""
    return x.unflatten(2, (parts, x.shape[2] // parts)).flatten(0, 2).permute(2, 0, 1).contiguous()


def _modulus(pair: Float[Tensor, "batch head part i j"]) -> Float[Tensor, "batch head i j"]:
    """Absolute value with derivative 0 at 0; torch's is NaN there."""
    squares = pair.square().sum(dim=2)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0)


def _all_pairs(table: Tensor, falloff: Tensor | None, lattice: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Entries of both tables for every query and key: ``(query, key, row)`` and ``(query, key)``."""
    index = pair_entries(from_integers(lattice), table.device)
    return table.flatten(0, -2)[index], None if falloff is None else falloff.flatten()[index]


@attend_at_once.register_fake
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, heads, components, queries = q.shape
    pairs = q.new_empty(batch, heads, parts, queries, k.shape[3])
    weights = q.new_empty(batch, heads, queries, k.shape[3])
    moduli = q.new_empty(0) if signed else torch.empty_like(weights)
    position = q.new_empty(batch, heads, table.shape[-1], queries)
    return q.new_empty(batch, heads, components, queries), position, pairs, moduli, weights


@attend_at_once_backward.register_fake
def _backward_shapes(
    grad_content: Tensor,
    grad_position: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    lattice: Sequence[int],
    content: Tensor,
    position: Tensor,
    pairs: Tensor,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = q.new_empty(q.shape[-1], *q.shape[:2], pairs.shape[2] * table.shape[-1])
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), rows.permute(1, 2, 3, 0)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.lattice, ctx.parts, ctx.signed = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)  # zeros for all pairs


def _backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, rows, table, bias, falloff, *outputs = ctx.saved_tensors
    grad_content, grad_position = (
        torch.zeros_like(x) if grad is None else grad for x, grad in zip(outputs, gradients[:2], strict=False)
    )
    with without_autocast(q):
        if not torch.is_grad_enabled():
            inputs = (grad_content, grad_position, q, k, v, table, ctx.lattice)
            return *attend_at_once_backward(*inputs, *outputs), *[None] * 6
        options = {"lattice": ctx.lattice, "parts": ctx.parts, "signed": ctx.signed}
        again = partial(attend_plain, table=table, bias=bias, falloff=falloff, **options)
        found = differentiable_gradients(again, (q, k, v, rows), (grad_content, grad_position))
    return *found, *[None] * 6


attend_at_once.register_autograd(_backward, setup_context=_setup_context)
