"""Clebsch-Gordan nonlinearity: the tensor product of features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.linear import Linear


class TensorProduct(ExactConstants):
    r"""Clebsch-Gordan nonlinearity: tensor product of two linear maps of the input (paper, section 2.4).

    $$y_{out} = \Big[\sum_{J,\ell} C^{out}_{J\ell}(a_J, b_\ell)\Big] W, \qquad a = f W_1, \quad b = f W_2$$

    (Kondor et al. 2018), with Clebsch-Gordan coefficients $C$ that couple copy by copy, for all pairs of degrees that
    couple to the output degree. In 2D, $\bar a_J$ serves as degree $-J$. Couplings are equivariant, so
    $y(\rho(R) f) = \rho(R)\, y(f)$ for every rotation. The output is quadratic in the input. In 3D the couplings cost
    far more than the linear maps. Initialization: ``docs/theory.md``.

    Args:
        in_type: type of the input; if it is real, so are $a$ and $b$.
        out_type: type of the output.
        copies: multiplicity of every degree in $a$ and $b$; by default the largest multiplicity of ``in_type``.

    Shape:
        - Input: $(N, C_{in}, *)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C_{out}, *)$ with $C_{out}$ = ``out_type.channels``.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (4, 4, 2))
    >>> sf.nn.TensorProduct(features, features)(features.randn(2, 16)).shape
    torch.Size([2, 20, 16, 16])
    """

    def __init__(self, in_type: FieldType, out_type: FieldType, *, copies: int | None = None) -> None:
        super().__init__()
        require_field_type(in_type, "TensorProduct")
        require_field_type(out_type, "TensorProduct")
        if in_type.group is not out_type.group:
            raise ValueError(f"TensorProduct needs both types in one group, got {in_type!r} in and {out_type!r} out.")
        if copies is not None and not is_integer(copies, least=1):
            raise ValueError(f"copies is an integer >= 1, got {copies!r}.")
        self.in_type, self.out_type = in_type, out_type
        group, count = in_type.group, int(copies or max(in_type.multiplicities))
        self.factors = FieldType(group, [count * bool(n) for n in in_type.multiplicities], real=in_type.real)
        self._pairs = {out: self._coupled_to(out) for out in out_type.degrees}
        for out, pairs in self._pairs.items():
            if not pairs:
                raise ValueError(f"no two degrees of {in_type} couple to degree {out}; leave it out of {out_type}.")
        self.products = FieldType(group, [count * bool(n) for n in out_type.multiplicities], real=in_type.real)
        self.left, self.right = Linear(in_type, self.factors), Linear(in_type, self.factors)
        self.mix = Linear(self.products, out_type)
        for out, pairs in self._pairs.items():
            # |C(y)| = |y| spreads the energy of y, its orders times parts, over the orders of `out`: parts add up
            scale = math.sqrt(group.irrep_dim(out) / (in_type.parts * len(pairs)))
            for i, (harmonic, degree) in enumerate(pairs):
                with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
                    coupling = group.coupling(out, harmonic, degree)
                self.register_constant(f"_c{out}_{i}", scale / math.sqrt(group.irrep_dim(abs(harmonic))) * coupling)

    def _coupled_to(self, out: int) -> list[tuple[int, int]]:
        """Pairs (harmonic, degree) of the factors' degrees that couple to degree ``out``."""
        degrees, harmonics_to = self.factors.degrees, self.in_type.group.harmonic_degrees
        return [(harmonic, d) for d in degrees for harmonic in harmonics_to(out, d) if abs(harmonic) in degrees]

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        """Apply the tensor product to a field of type ``in_type``."""
        left = dict(zip(self.factors.degrees, self.factors.split(self.left(x)), strict=True))
        right = dict(zip(self.factors.degrees, self.factors.split(self.right(x)), strict=True))
        sums = []
        for out, pairs in self._pairs.items():
            terms = [
                _couple(self.constant(f"_c{out}_{i}", x), left[abs(harmonic)], right[degree], conjugate=harmonic < 0)
                for i, (harmonic, degree) in enumerate(pairs)
            ]
            sums.append(torch.stack(terms).sum(dim=0) if len(terms) > 1 else terms[0])
        return self.mix(self.products.pack(sums))

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}"


def _couple(coupling: Tensor, a: Tensor, b: Tensor, *, conjugate: bool) -> Tensor:
    """Coupled real or complex product of two pieces ``(batch, part, order, copy, *space)``."""
    if a.shape[1] == 1:
        product = _outer(a[:, 0], b[:, 0])[:, None]
    else:
        ar, ai, br, bi = a[:, 0], a[:, 1], b[:, 0], b[:, 1]
        if conjugate:
            ai = -ai
        product = torch.stack([_outer(ar, br) - _outer(ai, bi), _outer(ar, bi) + _outer(ai, br)], dim=1)
    return torch.einsum("ohi,bphi...->bpo...", coupling, product)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a[:, :, None] * b[:, None, :]
