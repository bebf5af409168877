"""Pointwise nonlinearity in the space domain: to a grid of directions, through a ReLU, and back."""

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, require_field_type


class FourierReLU(ExactConstants):
    r"""ReLU on functions of direction: $u(n) = \sum_\ell \sqrt{d_\ell}\, Y_\ell(n)^\dagger f_\ell$, ReLU, and back.

    Real and imaginary part of $u$ are two real functions and go through the ReLU each by itself. Copy number $c$ of
    the function is made of the copies number $c$ of all degrees. The rotations of the voxel grid map the grid of
    directions to itself, so there equivariance is exact; at other angles what the ReLU puts beyond the grid's reach
    aliases back, the less the finer it is. (In the paper's list: Cohen et al. 2018.)

    Args:
        field_type: type of input and output, complex.
        oversampling: how many times the largest degree the grid of directions resolves.
    """

    def __init__(self, field_type: FieldType, *, oversampling: int = 4) -> None:
        super().__init__()
        require_field_type(field_type, "FourierReLU")
        if field_type.real:
            raise ValueError(f"FourierReLU takes complex fields, got {field_type!r}; real scalars take torch's ReLU.")
        if not is_integer(oversampling, least=2):
            raise ValueError(f"oversampling is an integer >= 2, got {oversampling!r}.")
        self.in_type = self.out_type = field_type
        self.oversampling = int(oversampling)
        with torch.device("cpu"):  # numbers are needed, wherever the layer is to live
            synthesis, analysis = self._matrices()
        for name, matrix in (("synthesis", synthesis), ("analysis", analysis)):
            parts = [matrix.real, matrix.imag] if matrix.is_complex() else [matrix]
            self.register_constant(f"_{name}", torch.stack(parts))
        self._orders = [field_type.group.irrep_dim(degree) for degree in field_type.degrees]

    def _matrices(self) -> tuple[Tensor, Tensor]:
        """From coefficients to values at directions, ``((degree, order), direction)``; and back, transposed."""
        group, degrees = self.in_type.group, self.in_type.degrees
        directions, weights = group.direction_grid(self.oversampling * max(max(degrees), 1))
        rows = [group.irrep_dim(degree) ** 0.5 * group.harmonics(degree, directions).mT.conj() for degree in degrees]
        synthesis = torch.cat(rows)
        return synthesis, synthesis.conj() * weights

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        most = max(self.in_type.multiplicities)
        pieces = [_widen(piece, most) for piece in self.in_type.split(x)]
        coefficients = torch.cat(pieces, dim=2)  # batch, part, (degree, order), copy, *space
        values = _transform(self.constant("_synthesis").mT, coefficients)
        found = _transform(self.constant("_analysis"), torch.relu(values)).split(self._orders, dim=2)
        kept = [
            piece[:, :, :, : self.in_type.multiplicity(d)] for d, piece in zip(self.in_type.degrees, found, strict=True)
        ]
        return self.out_type.pack(kept)

    def extra_repr(self) -> str:
        return f"{self.in_type}, oversampling={self.oversampling}"


def _transform(matrix: Float[Tensor, "part row column"], x: Tensor) -> Tensor:
    """Product over axis 2 of ``x``, whose real and imaginary part are on axis 1; a real matrix has one part."""
    columns = x.flatten(3)
    product = matrix[0] @ columns
    if len(matrix) == 2:
        crossed = matrix[1] @ columns
        product = product + torch.stack([-crossed[:, 1], crossed[:, 0]], dim=1)
    return product.unflatten(3, x.shape[3:])


def _widen(piece: Tensor, copies: int) -> Tensor:
    missing = copies - piece.shape[3]
    if not missing:
        return piece
    return torch.cat([piece, piece.new_zeros(*piece.shape[:3], missing, *piece.shape[4:])], dim=3)
