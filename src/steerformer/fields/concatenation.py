"""Concatenation of fields, degree by degree."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields.field_type import FieldType, require_field_type


def concat(
    fields: Sequence[Float[Tensor, "batch _ *space"]], types: Sequence[FieldType]
) -> Float[Tensor, "batch channels *space"]:
    r"""Concatenate fields, such as a skip connection and the features that it joins; the type is ``sum(types)``.

    Rotating and concatenating commute, $\mathrm{concat}(R f, R g) = R\,\mathrm{concat}(f, g)$, for every rotation.
    Within each degree the copies of the first field come first. Do not use ``torch.cat``: the channel axis holds part
    by part and degree by degree, so channels of the second field would count as other parts, degrees and orders.

    Args:
        fields: tensors of equal batch and spatial axes.
        types: the type of each, in one group, all real or all complex.

    >>> import steerformer as sf
    >>> features, skip = sf.FieldType(sf.SO2, "8x0+4x1"), sf.FieldType(sf.SO2, "4x0+2x1+2x2")
    >>> joined = sf.concat([features.randn(1, 16), skip.randn(1, 16)], [features, skip])
    >>> conv = sf.nn.Conv(features + skip, features, kernel_size=3)
    >>> conv(joined).shape
    torch.Size([1, 24, 16, 16])
    """
    total = _sum_of(types, count=len(fields), name="concat")
    pieces = [dict(zip(each.degrees, each.split(x), strict=True)) for x, each in zip(fields, types, strict=True)]
    shapes = [(x.shape[0], *x.shape[2:]) for x in fields]
    if len(set(shapes)) > 1:
        raise ValueError(f"concat takes fields of equal (batch, *space), got {shapes}; crop or resample one of them.")
    return total.pack(
        torch.cat([piece[degree] for piece in pieces if degree in piece], dim=3) for degree in total.degrees
    )


def separate(
    x: Float[Tensor, "batch channels *space"], types: Sequence[FieldType]
) -> list[Float[Tensor, "batch _ *space"]]:
    """Inverse of :func:`concat`: the fields of which ``x``, of type ``sum(types)``, consists.

    >>> import steerformer as sf, torch
    >>> scalars, vectors = sf.FieldType(sf.SO2, "3x0"), sf.FieldType(sf.SO2, "1x0+2x1")
    >>> f, g = scalars.randn(1, 5), vectors.randn(1, 5)
    >>> [part.shape[1] for part in sf.separate(sf.concat([f, g], [scalars, vectors]), [scalars, vectors])]
    [6, 6]
    """
    total = _sum_of(types, count=len(types), name="separate")
    start = dict.fromkeys(total.degrees, 0)
    fields = []
    for each in types:
        copies = {degree: slice(start[degree], start[degree] + each.multiplicity(degree)) for degree in each.degrees}
        fields.append(total.select(x, copies))
        start |= {degree: chosen.stop for degree, chosen in copies.items()}
    return fields


def _sum_of(types: Sequence[FieldType], *, count: int, name: str) -> FieldType:
    for each in types:
        require_field_type(each, name)
    if len(types) != count or not types:
        raise ValueError(f"{name} needs one type per field, and at least one, got {len(types)} for {count} fields.")
    first, *others = types
    return sum(others, start=first)
