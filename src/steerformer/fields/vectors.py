"""Vector fields in Cartesian components."""

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields.field_type import FieldType, require_field_type, require_floats


def to_cartesian(
    x: Float[Tensor, "batch channels *space"], field_type: FieldType
) -> Float[Tensor, "batch copy dim *space"]:
    r"""Cartesian components of a field of vectors, such as displacements, forces or gradients.

    $$v_a(x) = \mathrm{Re}\,\langle Y_1(e_a), f(x)\rangle, \qquad [Rv](x) = R\, v(R^{-1}x)$$

    where $e_a$ points along spatial axis $a$, so components are in tensor-axis order; flip their axis for (x, y) of
    an image in rows and columns. In 2D a vector is a complex number, $f = v_0 + i v_1$, and nothing is lost. In 3D
    nothing is lost of real fields either, ``FieldType.vectors(SO3, n, real=True)``. Of complex ones the real and the
    imaginary part are vectors each; $v$ is the real part. The imaginary part is dropped and gets a gradient of zero;
    multiply $f$ by $-i$ to read it.

    Args:
        x: field of type ``field_type``.
        field_type: vectors only, :meth:`FieldType.vectors <steerformer.FieldType.vectors>`; of other fields, select
            degree 1 first.
    Returns: a view. ``.flatten(1, 2)`` gives the components as channels of an image.

    >>> import steerformer as sf
    >>> image, flow = sf.FieldType.image(sf.SO3, 1), sf.FieldType.vectors(sf.SO3, 2)
    >>> conv = sf.nn.Conv(image, flow, kernel_size=3)
    >>> sf.to_cartesian(conv(image.randn(1, 8)), flow).shape
    torch.Size([1, 2, 3, 8, 8, 8])
    """
    _require_vectors(field_type, "to_cartesian")
    (vectors,) = field_type.split(x)
    # components of Y_1(e_a) are 1 at place a of (part, order) and 0 elsewhere, in 2D and in 3D
    return vectors.flatten(1, 2)[:, : field_type.group.dim].transpose(1, 2)


def from_cartesian(
    v: Float[Tensor, "batch copy dim *space"], field_type: FieldType
) -> Float[Tensor, "batch channels *space"]:
    r"""The field of vectors with these Cartesian components, $f(x) = \sum_a v_a(x)\, Y_1(e_a)$.

    ``to_cartesian(from_cartesian(v, t), t)`` is ``v``, bit by bit. In 3D the imaginary part of a complex field is 0.
    The components of a vector are not channels of an image: rotations mix them.

    Args:
        v: vectors, components in tensor-axis order; one vector for each copy of ``field_type``.
        field_type: vectors only, :meth:`FieldType.vectors <steerformer.FieldType.vectors>`.

    >>> import steerformer as sf, torch
    >>> flow = sf.FieldType.vectors(sf.SO2, 1)
    >>> sf.from_cartesian(torch.tensor([[[3.0, 4.0]]]), flow)
    tensor([[3., 4.]])
    """
    _require_vectors(field_type, "from_cartesian")
    require_floats(v)
    copies, dim = field_type.copies, field_type.group.dim
    if v.ndim < 3 or v.shape[1:3] != (copies, dim):
        raise ValueError(
            f"from_cartesian takes vectors of shape (batch, {copies}, {dim}, *space) for {field_type!r}, "
            f"got {tuple(v.shape)}."
        )
    parts, orders = field_type.parts, field_type.group.irrep_dim(1)
    rest = v.new_zeros(v.shape[0], parts * orders - dim, copies, *v.shape[3:])
    return field_type.pack([torch.cat([v.transpose(1, 2), rest], dim=1).unflatten(1, (parts, orders))])


def _require_vectors(field_type: FieldType, name: str) -> None:
    require_field_type(field_type, name)
    if field_type.degrees != (1,):
        raise ValueError(
            f"{name} takes vectors only, such as {FieldType.vectors(field_type.group, 1)!r}, got {field_type!r}; "
            f"select(x, 1) takes the vectors out of a field."
        )
