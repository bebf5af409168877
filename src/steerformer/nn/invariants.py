"""From fields to numbers that no rotation changes."""

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.nn.ops import copy_norms


class Invariants(nn.Module):
    """Length of every irrep copy, a field of real scalars (paper: before the head). Real scalars pass as they are."""

    def __init__(self, in_type: FieldType) -> None:
        super().__init__()
        require_field_type(in_type, "Invariants")
        self.in_type = in_type
        self.out_type = FieldType.image(in_type.group, in_type.copies)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        self.in_type.require_channels(x)
        return x if self.in_type.real else copy_norms(self.in_type, x)

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}"
