"""Fourier-based pointwise nonlinearity: inverse transform to directions, ReLU, transform back."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, real_form, require_field_type
from steerformer.nn.fourier_blocks import BlockwiseReLU, CopySet, composed_relu, find_runs
from steerformer.nn.ops import is_autocast, is_traced


class FourierReLU(ExactConstants):
    r"""Fourier nonlinearity: ReLU on functions of direction sampled on a grid (Cohen et al. 2018; paper, section 2.4).

    $$u(n) = \sum_\ell \sqrt{d_\ell}\, Y_\ell(n)^\dagger f_\ell, \qquad
      \sigma(f)_\ell = \sqrt{d_\ell}\, \langle Y_\ell(n)\, \mathrm{ReLU}(u(n)) \rangle_n$$

    with the dimension $d_\ell$ of the irrep and the mean $\langle\cdot\rangle_n$ over directions $n$. The ReLU acts on
    real and imaginary part of $u$ separately; of real fields, $u$ is real. Copy $c$ of all degrees that have one is one
    function: multiplicities (8, 4, 2) give 2 functions with degrees up to 2, 2 functions with degrees 0 and 1, and 4
    constants.

    Each function is sampled on a grid of directions for its own highest degree $L$. The grid resolves degree
    ``oversampling`` $\cdot (L + 1)$, at most ``oversampling`` times the largest degree of the field. Constants need no
    grid, and in 3D neither do functions with degrees 0 and 1, whose integrals have a closed form.

    $\sigma(\rho(R) f) = \rho(R)\, \sigma(f)$ holds exactly for the rotations of the voxel grid, which map the grids of
    directions to themselves, and at other angles up to aliasing, which decreases with ``oversampling``; it is exact at
    all angles where no grid is needed. The transforms dominate the cost, above all in 3D, where the number of
    directions grows as the square of ``oversampling``. Few copies of high degrees keep it low. Values at directions are
    in memory for a block of voxels at a time; under autocast, torch.compile and torch.func for all voxels at once.

    Args:
        field_type: type of input and output.
        oversampling: degree that the finest grid of directions resolves, as a multiple of the largest degree.

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
        if not is_integer(oversampling, least=2):
            raise ValueError(f"oversampling is an integer >= 2, got {oversampling!r}.")
        self.in_type = self.out_type = field_type
        self.oversampling = int(oversampling)
        self._sets = list(self._copy_sets())

    def _copy_sets(self) -> Iterator[CopySet]:
        """Copies with the same degrees; registers the matrices of those that need a grid of directions."""
        multiplicities, first = self.in_type.multiplicities, 0
        for last in sorted({count for count in multiplicities if count}):
            degrees = tuple(degree for degree in self.in_type.degrees if multiplicities[degree] >= last)
            parts = 1
            if not _has_closed_form(self.in_type, degrees):
                with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
                    synthesis, analysis = self._matrices(degrees)
                parts = 2 if synthesis.is_complex() else 1
                self.register_constant(f"_synthesis{first}", _real(synthesis))
                self.register_constant(f"_analysis{first}", _real(analysis))
            yield CopySet(first, last, degrees, self.in_type.parts // parts, find_runs(self.in_type, degrees, parts))
            first = last

    def _matrices(self, degrees: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Matrices from coefficients to values at directions, ``(direction, coefficient)``, and back."""
        group = self.in_type.group
        resolved = min(max(degrees) + 1, max(self.in_type.degrees))
        directions, weights = group.direction_grid(self.oversampling * resolved)
        columns = [group.irrep_dim(degree) ** 0.5 * group.harmonics(degree, directions).conj() for degree in degrees]
        synthesis = torch.cat(columns, dim=1)
        return synthesis, synthesis.mH * weights

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Apply the nonlinearity to a field of type ``in_type``."""
        self.in_type.require_channels(x)
        sets = [self._with_matrices(copies, x) for copies in self._sets]
        if is_traced(x) or is_autocast(x) or x.element_size() < 4 or not x.numel():
            return composed_relu(x, self.in_type, sets)
        out: Tensor = BlockwiseReLU.apply(x, self.in_type, sets)
        return out

    def _with_matrices(self, copies: CopySet, x: Tensor) -> CopySet:
        if _has_closed_form(self.in_type, copies.degrees):
            return copies
        synthesis, analysis = (self.constant(f"_{name}{copies.first}", x) for name in ("synthesis", "analysis"))
        return copies._replace(synthesis=synthesis, analysis=analysis)

    def extra_repr(self) -> str:
        return f"{self.in_type}, oversampling={self.oversampling}"


def _has_closed_form(field_type: FieldType, degrees: tuple[int, ...]) -> bool:
    """Constants, and on the sphere functions with degrees 0 and 1."""
    return degrees == (0,) or (degrees == (0, 1) and field_type.group.irrep_dim(1) == 3)


def _real(matrix: Tensor) -> Tensor:
    """A real matrix as it is; the real form of a complex one, which acts on (part, coefficient) or (part, value)."""
    return real_form(matrix).flatten(2, 3).flatten(0, 1) if matrix.is_complex() else matrix.contiguous()
