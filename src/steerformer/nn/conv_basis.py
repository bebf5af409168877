"""Convolution with the fixed functions of the basis first, and mixing of channels by the weights afterwards.

The kernel is never assembled. This is the least work for an image with many output channels, and for few outputs, such
as the single one of a kernel that covers the whole grid.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.kernels import KernelBasis


def basis_convolve(
    x: Float[Tensor, "batch in *space"],
    weights: Float[Tensor, "part weight"],
    basis: KernelBasis,
    convolve: Callable[[Tensor, Tensor], Tensor],
) -> Float[Tensor, "batch out *new"]:
    """Apply the functions of ``basis`` to the input by ``convolve(input, kernel)``, and mix the results."""
    split = dict(zip(basis.pairs, basis.split(weights), strict=True))
    places = {pair: i for i, pair in enumerate(basis.pairs)}
    found: dict[int, Tensor] = {}
    for degree_in, piece in zip(basis.in_type.degrees, basis.in_type.split(x), strict=True):
        reached = [degree for degree in basis.out_type.degrees if split[degree, degree_in].shape[3]]
        if not reached:
            continue
        functions = [basis.functions(places[degree, degree_in], weights) for degree in reached]
        responses = _responses(piece, functions, convolve)
        for degree, response in zip(reached, responses, strict=True):
            mixed = _mix(response, split[degree, degree_in], basis.out_type.parts)
            found[degree] = found[degree] + mixed if degree in found else mixed
    like = next(iter(found.values()))
    return basis.out_type.pack(
        found[degree] if degree in found else like.new_zeros(_shape(basis, degree, like))
        for degree in basis.out_type.degrees
    )


def _shape(basis: KernelBasis, degree: int, like: Tensor) -> tuple[int, ...]:
    """Shape of the output of a degree that no kernel reaches."""
    orders, copies = basis.out_type.group.irrep_dim(degree), basis.out_type.multiplicity(degree)
    return (*like.shape[:2], orders, copies, *like.shape[4:])


def _responses(
    piece: Float[Tensor, "batch part order copy *space"],
    functions: list[Float[Tensor, "_ _ _ order *points"]],
    convolve: Callable[[Tensor, Tensor], Tensor],
) -> list[Float[Tensor, "batch copy _ _ _ *new"]]:
    """Responses ``(batch, copy, part, path, order, *space)`` of every copy to the functions of each output degree."""
    batch, parts, orders, copies = piece.shape[:4]
    images = piece.transpose(2, 3).reshape(batch * parts * copies, orders, *piece.shape[4:])
    kernels = [each.flatten(0, 2) for each in functions]
    responses = convolve(images, torch.cat(kernels)).split([len(kernel) for kernel in kernels], dim=1)
    found = []
    for each, response in zip(functions, responses, strict=True):
        response = response.unflatten(1, each.shape[:3]).unflatten(0, (batch, parts, copies))
        if parts == 1:
            found.append(response[:, 0])
        elif len(each) == 1:
            found.append(response[:, :, :, 0].transpose(1, 2))
        else:
            re, im = response.unbind(1)
            found.append(torch.stack([re[:, :, 0] - im[:, :, 1], re[:, :, 1] + im[:, :, 0]], dim=2))
    return found


def _mix(
    response: Float[Tensor, "batch copy_in part path order *space"],
    weights: Float[Tensor, "weight_part copy_out copy_in path"],
    out_parts: int,
) -> Float[Tensor, "batch out_part order copy_out *space"]:
    """Complex product of responses with weights, summed over copies and paths; only its real part if that is all."""
    re = weights[0]
    im = weights[1] if len(weights) == 2 else torch.zeros_like(re)
    rows = [[re, -im], [im, re]][:out_parts]
    parts = response.shape[2]
    matrix = torch.stack([torch.stack(row[:parts], dim=2) for row in rows])  # part, copy out, copy in, part, path
    mixed = matrix.flatten(0, 1).flatten(1) @ response.flatten(1, 3).flatten(2)
    return mixed.unflatten(2, response.shape[4:]).unflatten(1, (out_parts, weights.shape[1])).transpose(2, 3)
