"""Groups of a convolution: the copies of every degree in equal shares, each convolved by itself."""

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


def dense_kernel(
    kernels: list[Float[Tensor, "_ _ *size"]], in_type: FieldType, out_type: FieldType
) -> Float[Tensor, "out in *size"]:
    """The real kernel between the whole types, zero between different groups, from that of each group."""
    groups, (out, into, *size) = len(kernels), kernels[0].shape
    whole = kernels[0].new_zeros(groups, out, groups, into, *size)
    for i, kernel in enumerate(kernels):
        whole[i, :, i] = kernel
    return join_groups(in_type, join_groups(out_type, whole[None])[0])
