"""Groups of a convolution: the copies of every degree in equal shares, each convolved by itself."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import FieldType, is_integer


def group_type(field_type: FieldType, groups: int) -> FieldType:
    """Type of one of the groups; raises ``ValueError`` unless they have equal shares of every degree."""
    if not is_integer(groups, least=1):
        raise ValueError(f"groups is an integer >= 1, got {groups!r}.")
    for degree in field_type.degrees:
        if field_type.multiplicity(degree) % groups:
            raise ValueError(
                f"groups must divide the multiplicity of every degree, got groups={groups} for "
                f"{field_type.multiplicity(degree)} copies of degree {degree} in {field_type!r}."
            )
    return FieldType(field_type.group, [n // groups for n in field_type.multiplicities], real=field_type.real)


def split_groups(
    field_type: FieldType, x: Float[Tensor, "batch channels *space"], groups: int
) -> Float[Tensor, "batch group _ *space"]:
    """Fields of :func:`group_type`; the first has the first copies of every degree."""
    pieces = [piece.unflatten(3, (groups, -1)).movedim(3, 1).flatten(3, 4) for piece in field_type.split(x)]
    return torch.cat(pieces, dim=3).flatten(2, 3)


def join_groups(
    field_type: FieldType, x: Float[Tensor, "batch group _ *space"]
) -> Float[Tensor, "batch channels *space"]:
    """Inverse of :func:`split_groups`."""
    batch, groups = x.shape[:2]
    pieces = group_type(field_type, groups).split(x.flatten(0, 1))
    return field_type.pack(piece.unflatten(0, (batch, groups)).movedim(1, 3).flatten(3, 4) for piece in pieces)


def convolve_together(
    x: Float[Tensor, "batch group _ *space"],
    kernels: Sequence[Float[Tensor, "_ _ *size"]],
    convolve: Callable[[Tensor, Tensor], Tensor],
) -> Float[Tensor, "batch group _ *new"]:
    """All groups in one convolution ``convolve(input, kernel)`` of torch, or in three for complex arithmetic.

    Kernels are those of :func:`~steerformer.nn.conv_direct.direct_kernels`, of one group after the other.
    """
    groups = x.shape[1]
    if len(kernels) == 1:
        return convolve(x.flatten(1, 2), kernels[0]).unflatten(1, (groups, -1))
    re, im = (part.flatten(1, 2) for part in x.chunk(2, dim=2))
    # Gauss's trick: three real products instead of four
    a, b, both = convolve(re, kernels[0]), convolve(im, kernels[1]), convolve(re + im, kernels[2])
    return torch.cat([part.unflatten(1, (groups, -1)) for part in (a - b, both - a - b)], dim=2)


def dense_kernel(
    kernels: list[Float[Tensor, "_ _ *size"]], in_type: FieldType, out_type: FieldType
) -> Float[Tensor, "out in *size"]:
    """The real kernel between the whole types, zero between different groups, from that of each group."""
    groups, (out, into, *size) = len(kernels), kernels[0].shape
    whole = kernels[0].new_zeros(groups, out, groups, into, *size)
    for i, kernel in enumerate(kernels):
        whole[i, :, i] = kernel
    return join_groups(in_type, join_groups(out_type, whole[None])[0])
