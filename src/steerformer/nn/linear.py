"""Equivariant linear layer: mix the copies of each degree at every position."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.nn.ops import require_dtype


class Linear(nn.Module):
    r"""Equivariant linear layer: mix the copies of each degree at every position (paper, section 3.3).

    $$y_\ell(x) = f_\ell(x)\, W_\ell$$

    with a complex matrix $W_\ell$ per degree, which by Schur's lemma is the most general equivariant map of one
    position: $(\rho(R) f) W = \rho(R) (f W)$, for every rotation. Degrees that only the input has are dropped, degrees
    that only the output has are zero. Towards real scalars the layer returns the real part. Unit variance is kept at
    initialization: ``docs/theory.md``.

    Args:
        in_type: type of the input.
        out_type: type of the output; must share a degree with ``in_type``.

    Shape:
        - Input: $(N, C_{in}, *)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C_{out}, *)$ with $C_{out}$ = ``out_type.channels``.

    >>> import steerformer as sf
    >>> features, wide = sf.FieldType(sf.SO2, (8, 4)), sf.FieldType(sf.SO2, (16, 8))
    >>> sf.nn.Linear(features, wide)(features.randn(2, 16)).shape
    torch.Size([2, 48, 16, 16])
    """

    def __init__(self, in_type: FieldType, out_type: FieldType) -> None:
        super().__init__()
        require_field_type(in_type, "Linear")
        require_field_type(out_type, "Linear")
        if in_type.group is not out_type.group:
            raise ValueError(f"Linear needs both types in one group, got {in_type!r} in and {out_type!r} out.")
        self.in_type, self.out_type = in_type, out_type
        self.shared = [degree for degree in out_type.degrees if in_type.multiplicity(degree)]
        if not self.shared:
            raise ValueError(f"Linear mixes copies of equal degree, but {in_type} and {out_type} share none.")
        parts = 1 if in_type.real and out_type.real else 2
        self.weights = nn.ParameterList(
            torch.empty(parts, out_type.multiplicity(degree), in_type.multiplicity(degree)) for degree in self.shared
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"."""
        with torch.no_grad():
            for weight in self.weights:
                weight.normal_(std=1 / math.sqrt(weight.shape[2] * self.in_type.parts))

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        """Mix the copies of a field of type ``in_type``."""
        pieces = dict(zip(self.in_type.degrees, self.in_type.split(x), strict=True))
        require_dtype(x, self.weights[0], "Linear")
        weights = dict(zip(self.shared, self.weights, strict=True))
        mixed = []
        for degree in self.out_type.degrees:
            if degree in weights:
                mixed.append(_mix(self._real_weight(weights[degree]), pieces[degree]))
            else:
                shape = (x.shape[0], self.out_type.parts, self.out_type.group.irrep_dim(degree))
                mixed.append(x.new_zeros(*shape, self.out_type.multiplicity(degree), *x.shape[2:]))
        return self.out_type.pack(mixed)

    def _real_weight(self, weight: Tensor) -> Tensor:
        """The weight as a real matrix ``(part out, copy out, part in, copy in)``."""
        if len(weight) == 1:
            return weight[:, :, None, :]
        re, im = weight
        full = torch.stack([torch.stack([re, -im], dim=1), torch.stack([im, re], dim=1)])
        return full[: self.out_type.parts, :, : self.in_type.parts]

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}"


def _mix(weight: Tensor, piece: Tensor) -> Tensor:
    parts, copies = weight.shape[:2]
    batch, _, orders, _, *space = piece.shape
    columns = (
        piece.transpose(1, 2).flatten(2, 3).flatten(3) if space else piece.transpose(1, 2).flatten(2, 3)[..., None]
    )
    mixed = weight.flatten(0, 1).flatten(1) @ columns  # batch, order, (part, copy), position
    return mixed.reshape(batch, orders, parts, copies, *space).transpose(1, 2)
