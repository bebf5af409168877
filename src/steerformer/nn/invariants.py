"""Rotation-invariant features."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.nn.ops import copy_norms


class Invariants(nn.Module):
    r"""Rotation-invariant features: the norm of every irrep copy (paper, before the classification head).

    $$g_c(x) = \|f_c(x)\|, \qquad \|\rho(R) f_c\| = \|f_c\|$$

    The output is a field of real scalars: a rotation of the input moves their positions and keeps their values. Real
    scalars, alone or in a real field, pass unchanged: they are invariant, and their norm would drop the sign.

    Args:
        in_type: type of the input; the output has the type ``FieldType.image(in_type.group, in_type.copies)``.

    Shape:
        - Input: $(N, C_{in}, *)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C_{out}, *)$ with $C_{out}$ = ``in_type.copies``.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.Invariants(features)(features.randn(2, 16)).shape
    torch.Size([2, 12, 16, 16])
    """

    def __init__(self, in_type: FieldType) -> None:
        super().__init__()
        require_field_type(in_type, "Invariants")
        self.in_type = in_type
        self.out_type = FieldType.image(in_type.group, in_type.copies)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        """Compute the norm of every copy of a field of type ``in_type``."""
        self.in_type.require_channels(x)
        scalars = self.in_type.multiplicity(0) if self.in_type.real else 0
        if scalars == x.shape[1]:
            return x
        norms = copy_norms(self.in_type, x)
        return torch.cat([x[:, :scalars], norms[:, scalars:]], dim=1) if scalars else norms

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}"
