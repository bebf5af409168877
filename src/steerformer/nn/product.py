"""The Clebsch-Gordan nonlinearity: features multiply features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType
from steerformer.nn.linear import Linear


class TensorProduct(ExactConstants):
    r"""$y = W\, \mathrm{CG}(W_1 x, W_2 x)$: two mixtures of the input, coupled copy by copy, and mixed again.

    Every coupling that a kernel may use is used here, with a feature in place of the harmonic,
    $y_{out} = \sum_{J,\ell} C^{out}_{J\ell}(a_J, b_\ell)$; where a kernel of the plane needs a harmonic of negative
    degree, the feature's complex conjugate takes its place. Outputs are quadratic in the inputs, scaled so that
    independent inputs of unit variance give unit variance. (In the paper's list: Kondor et al. 2018.)

    Args:
        in_type: type of the input, complex.
        out_type: type of the output.
        copies: how many copies of each degree the two mixtures have; by default the most the input has of any.
    """

    def __init__(self, in_type: FieldType, out_type: FieldType, *, copies: int | None = None) -> None:
        super().__init__()
        if in_type.real or out_type.real:
            raise ValueError(f"TensorProduct takes and gives complex fields, got {in_type!r} to {out_type!r}.")
        if in_type.group is not out_type.group:
            raise ValueError(f"TensorProduct stays within one group, got {in_type!r} in and {out_type!r} out.")
        if copies is not None and (not isinstance(copies, int) or copies < 1):
            raise ValueError(f"the number of copies of each degree is an integer >= 1, got {copies!r}.")
        self.in_type, self.out_type = in_type, out_type
        group, count = in_type.group, copies or max(in_type.multiplicities)
        factors = FieldType(group, [count * bool(n) for n in in_type.multiplicities])
        products = FieldType(group, [count * bool(n) for n in out_type.multiplicities])
        self.left, self.right = Linear(in_type, factors), Linear(in_type, factors)
        self.mix = Linear(products, out_type)
        self.factors, self.products = factors, products
        self._couplings: list[tuple[int, int, int]] = []  # degree out, harmonic, degree in
        for out in products.degrees:
            triples = [
                (out, harmonic, degree)
                for degree in factors.degrees
                for harmonic in group.harmonic_degrees(out, degree)
                if abs(harmonic) in factors.degrees
            ]
            if not triples:
                raise ValueError(f"no two degrees of {in_type} couple to degree {out}; leave it out of {out_type}.")
            self._couplings += triples
            # |C(y)| = |y| shares 2 * orders of y out over the orders of `out`; real and imaginary part add up
            scale = math.sqrt(group.irrep_dim(out) / (2 * len(triples)))
            for i, (_, harmonic, degree) in enumerate(triples):
                coupling = scale / math.sqrt(group.irrep_dim(abs(harmonic))) * group.coupling(out, harmonic, degree)
                self.register_constant(f"_c{out}_{i}", coupling)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *space"]:
        left = dict(zip(self.factors.degrees, self.factors.split(self.left(x)), strict=True))
        right = dict(zip(self.factors.degrees, self.factors.split(self.right(x)), strict=True))
        sums = []
        for out in self.products.degrees:
            terms = [
                _couple(self.constant(f"_c{out}_{i}"), left[abs(harmonic)], right[degree], conjugate=harmonic < 0)
                for i, (_, harmonic, degree) in enumerate(c for c in self._couplings if c[0] == out)
            ]
            sums.append(torch.stack(terms).sum(dim=0) if len(terms) > 1 else terms[0])
        return self.mix(self.products.pack(sums))


def _couple(coupling: Tensor, a: Tensor, b: Tensor, *, conjugate: bool) -> Tensor:
    """Complex product of two pieces ``(batch, part, order, copy, *space)``, orders coupled."""
    ar, ai, br, bi = a[:, 0], a[:, 1], b[:, 0], b[:, 1]
    if conjugate:
        ai = -ai
    product = torch.stack([_outer(ar, br) - _outer(ai, bi), _outer(ar, bi) + _outer(ai, br)], dim=1)
    return torch.einsum("ohi,bphi...->bpo...", coupling, product)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a[:, :, None] * b[:, None, :]
