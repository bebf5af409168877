"""A nonlinearity of one's own, its equivariance test, and a negative control.

Softplus of the norm keeps directions, so it commutes with rotations. Softplus of every channel does not.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steerformer as sf


class NormSoftplus(nn.Module):
    """Every irrep copy f becomes softplus(|f| + b) f / |f|, with a learnable b for each copy."""

    def __init__(self, field_type: sf.FieldType) -> None:
        super().__init__()
        self.in_type = self.out_type = field_type
        self.bias = nn.ParameterList(torch.zeros(field_type.multiplicity(d)) for d in field_type.degrees)

    def forward(self, x: Tensor) -> Tensor:
        pieces = []
        for bias, piece in zip(self.bias, self.in_type.split(x), strict=True):  # batch, part, order, copy, *space
            norm = piece.square().sum(dim=(1, 2), keepdim=True).add(1e-12).sqrt()
            pieces.append(piece * F.softplus(norm + bias.view(-1, *[1] * (x.ndim - 2))) / norm)
        return self.out_type.pack(pieces)


class ChannelSoftplus(nn.Module):
    """The mistake: real and imaginary parts and orders are no scalars."""

    def __init__(self, field_type: sf.FieldType) -> None:
        super().__init__()
        self.in_type = self.out_type = field_type

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


def main() -> None:
    for group in (sf.SO2, sf.SO3):
        features = sf.FieldType(group, (4, 2, 1))
        rotation = group.random_rotation(torch.Generator().manual_seed(0))
        for layer in (NormSoftplus(features).double(), ChannelSoftplus(features)):
            error = sf.testing.equivariance_error(layer, rotation, size=7)
            print(f"{group} {type(layer).__name__}: relative equivariance error {error.total:.1e}")
        sf.testing.assert_equivariant(NormSoftplus(features))


if __name__ == "__main__":
    main()
