"""Fourier-based pointwise nonlinearity: inverse transform to directions, ReLU, transform back."""

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, require_field_type


class FourierReLU(ExactConstants):
    r"""Fourier nonlinearity: ReLU on functions of direction sampled on a grid (Cohen et al. 2018; paper, section 2.4).

    $$u(n) = \sum_\ell \sqrt{d_\ell}\, Y_\ell(n)^\dagger f_\ell, \qquad
      \sigma(f)_\ell = \sqrt{d_\ell}\, \langle Y_\ell(n)\, \mathrm{ReLU}(u(n)) \rangle_n$$

    with the dimension $d_\ell$ of the irrep and the mean $\langle\cdot\rangle_n$ over directions $n$. The ReLU acts on
    real and imaginary part of $u$ separately. The copies $c$ of all degrees together are one function.

    $\sigma(\rho(R) f) = \rho(R)\, \sigma(f)$ holds exactly for the rotations of the voxel grid, which map the grid of
    directions to itself, and at other angles up to aliasing, which decreases with ``oversampling``. The transforms
    dominate the cost, above all in 3D, where the number of directions grows as the square of ``oversampling``.

    Args:
        field_type: type of input and output, complex.
        oversampling: degree that the grid of directions resolves, as a multiple of the largest degree.

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (4, 4, 4))
    >>> sf.nn.FourierReLU(features)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(self, field_type: FieldType, *, oversampling: int = 4) -> None:
        super().__init__()
        require_field_type(field_type, "FourierReLU")
        if field_type.real:
            raise ValueError(
                f"FourierReLU takes complex fields, got {field_type!r}; use torch's ReLU for real scalars."
            )
        if not is_integer(oversampling, least=2):
            raise ValueError(f"oversampling is an integer >= 2, got {oversampling!r}.")
        self.in_type = self.out_type = field_type
        self.oversampling = int(oversampling)
        with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
            synthesis, analysis = self._matrices()
        for name, matrix in (("synthesis", synthesis), ("analysis", analysis)):
            parts = [matrix.real, matrix.imag] if matrix.is_complex() else [matrix]
            self.register_constant(f"_{name}", torch.stack(parts))
        self._orders = [field_type.group.irrep_dim(degree) for degree in field_type.degrees]

    def _matrices(self) -> tuple[Tensor, Tensor]:
        """Synthesis and analysis: coefficients to values at directions and back, both ``(coefficient, direction)``."""
        group, degrees = self.in_type.group, self.in_type.degrees
        directions, weights = group.direction_grid(self.oversampling * max(max(degrees), 1))
        rows = [group.irrep_dim(degree) ** 0.5 * group.harmonics(degree, directions).mT.conj() for degree in degrees]
        synthesis = torch.cat(rows)
        return synthesis, synthesis.conj() * weights

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Apply the nonlinearity to a field of type ``in_type``."""
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
    """Matrix product along axis 2 of ``x``, which has real and imaginary part on axis 1; a real matrix has one part."""
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
