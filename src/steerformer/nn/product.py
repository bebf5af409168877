"""Clebsch-Gordan nonlinearity: the tensor product of features."""

import math
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, is_integer, require_field_type
from steerformer.nn.linear import Linear
from steerformer.nn.product_paths import ProductPath, product_paths


class TensorProduct(ExactConstants):
    r"""Clebsch-Gordan nonlinearity: tensor product of linear maps of one input (paper, section 2.4) or of two.

    $$y_{out} = \Big[\sum_{J,\ell} C^{out}_{J\ell}(a_J, b_\ell)\Big] W, \qquad a = f W_1, \quad b = f W_2$$

    (Kondor et al. 2018), with Clebsch-Gordan coefficients $C$ that couple copy by copy, for all pairs of degrees that
    couple to the output degree. In 2D, $\bar a_J$ serves as degree $-J$. Couplings are equivariant, so
    $y(\rho(R) f) = \rho(R)\, y(f)$ for every rotation. The output is quadratic in the input. In 3D the couplings cost
    far more than the linear maps. Initialization: ``docs/theory.md``.

    With three types, ``TensorProduct(type_a, type_b, out_type)``, or with ``paths``, each path has weights of its own:

    $$y_{out} = \sum_p C^{out}_{J_p \ell_p}(a_{J_p}, b_{\ell_p})\, W_p, \qquad a = f W_1, \quad b = g W_2$$

    where $g$ is the second input, or $f$ again. This is bilinear in $f$ and $g$, and
    $y(\rho(R) f, \rho(R) g) = \rho(R)\, y(f, g)$. A path $(J, \ell, out)$ is in 3D the coupling of these degrees. In 2D
    it is the complex product: $a_J b_\ell$ to degree $J + \ell$, $\bar a_J b_\ell$ to $\ell - J \ge 0$, and
    $a_J \bar b_\ell$ to $J - \ell > 0$.

    Args:
        types: type of the input, or types of both inputs, and last the type of the output. If all inputs are
            real, so are $a$ and $b$.
        copies: multiplicity of every degree in $a$ and $b$; by default the largest multiplicity of the inputs.
        paths: degrees that couple, each path as (degree of the first, degree of the second, degree of the output); with
            three types by default all that are possible.

    Shape:
        - Input: $(N, C_{in}, *)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and spatial axes $*$, or none;
          the second input $(N, C, *)$ with $C$ = ``other_type.channels``.
        - Output: $(N, C_{out}, *)$ with $C_{out}$ = ``out_type.channels``.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (4, 4, 2))
    >>> sf.nn.TensorProduct(features, features)(features.randn(2, 16)).shape
    torch.Size([2, 20, 16, 16])
    >>> a, b, out = (sf.FieldType(sf.SO3, copies) for copies in ("8x0+4x1", "2x1", "4x0+4x1"))
    >>> product = sf.nn.TensorProduct(a, b, out, paths=[(1, 1, 0), (0, 1, 1), (1, 1, 1)])
    >>> product(a.randn(2, 5), b.randn(2, 5)).shape
    torch.Size([2, 32, 5, 5, 5])
    """

    def __init__(
        self, *types: FieldType, copies: int | None = None, paths: Iterable[Sequence[int]] | None = None
    ) -> None:
        super().__init__()
        _require_types(types)
        if copies is not None and not is_integer(copies, least=1):
            raise ValueError(f"copies is an integer >= 1, got {copies!r}.")
        self.in_type, self.out_type = types[0], types[-1]
        self.other_type = types[1] if len(types) == 3 else None
        count = int(copies or max(n for each in types[:-1] for n in each.multiplicities))
        self.paths: list[ProductPath] | None = None
        if self.other_type is None and paths is None:
            self._couple_all(count)
        else:
            self._couple_paths(count, paths)

    def _couple_all(self, count: int) -> None:
        """All couplings of the input with itself, summed."""
        in_type, out_type, group = self.in_type, self.out_type, self.in_type.group
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

    def _couple_paths(self, count: int, paths: Iterable[Sequence[int]] | None) -> None:
        """Chosen couplings, each with its own weights: products of all paths are concatenated, then mixed."""
        in_type, other, group = self.in_type, self.other_type or self.in_type, self.in_type.group
        real = in_type.real and other.real
        self.paths = product_paths(in_type, other, self.out_type, paths)
        self.left = Linear(in_type, FieldType(group, {path.left: count for path in self.paths}, real=real))
        self.right = Linear(other, FieldType(group, {path.right: count for path in self.paths}, real=real))
        outs = [path.out for path in self.paths]
        self.products = FieldType(group, {out: count * outs.count(out) for out in outs}, real=real)
        self.mix = Linear(self.products, self.out_type)
        for i, path in enumerate(self.paths):
            self.register_constant(f"_path{i}", path.coupling(group, self.products.parts))

    def _coupled_to(self, out: int) -> list[tuple[int, int]]:
        """Pairs (harmonic, degree) of the factors' degrees that couple to degree ``out``."""
        degrees, harmonics_to = self.factors.degrees, self.in_type.group.harmonic_degrees
        return [(harmonic, d) for d in degrees for harmonic in harmonics_to(out, d) if abs(harmonic) in degrees]

    def forward(
        self, x: Float[Tensor, "batch in *space"], other: Float[Tensor, "batch second *space"] | None = None
    ) -> Float[Tensor, "batch out *space"]:
        """Apply the tensor product to a field of type ``in_type``.

        Args:
            x: the field.
            other: second input, a field of type ``other_type`` on the same grid, if the layer has three types.
        """
        self._require_inputs(x, other)
        if self.paths is not None:
            return self.mix(self.products.pack(self._path_products(x, x if other is None else other)))
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

    def _path_products(self, x: Tensor, other: Tensor) -> list[Float[Tensor, "batch part order copy *space"]]:
        """Products of all paths to each output degree, side by side as copies."""
        lefts, rights = (
            dict(zip(linear.out_type.degrees, linear.out_type.split(linear(field)), strict=True))
            for linear, field in ((self.left, x), (self.right, other))
        )
        found: dict[int, list[Tensor]] = {}
        for i, path in enumerate(self.paths or []):
            factors = (lefts[path.left], rights[path.right])
            first, second = factors[::-1] if path.is_swapped else factors
            coupled = _couple(self.constant(f"_path{i}", x), first, second, conjugate=path.harmonic < 0)
            found.setdefault(path.out, []).append(coupled)
        return [torch.cat(products, dim=3) for products in found.values()]

    def _require_inputs(self, x: Tensor, other: Tensor | None) -> None:
        if (other is None) != (self.other_type is None):
            wanted = "one field" if self.other_type is None else f"two fields, {self.in_type!r} and {self.other_type!r}"
            raise ValueError(f"this TensorProduct takes {wanted}, got {1 if other is None else 2}.")
        if other is not None and (x.shape[0], *x.shape[2:]) != (other.shape[0], *other.shape[2:]):
            raise ValueError(
                f"TensorProduct takes fields of equal (batch, *space), got shapes {tuple(x.shape)} and "
                f"{tuple(other.shape)}; crop or resample one of them."
            )

    def extra_repr(self) -> str:
        inputs = f"{self.in_type}" if self.other_type is None else f"{self.in_type}, {self.other_type}"
        paths = "" if self.paths is None else f", paths={[tuple(path[:3]) for path in self.paths]}"
        return f"{inputs} -> {self.out_type}{paths}"


def _require_types(types: Sequence[FieldType]) -> None:
    """Raise unless these are two or three types of one group."""
    if len(types) not in (2, 3):
        raise TypeError(f"TensorProduct takes the types of one or two inputs, then that of the output, got {types!r}.")
    for each in types:
        require_field_type(each, "TensorProduct")
    *inputs, out = types
    described = f"{' and '.join(repr(each) for each in inputs)} in and {out!r} out"
    if any(each.group is not out.group for each in inputs):
        every = "both" if len(types) == 2 else "all"
        raise ValueError(f"TensorProduct needs {every} types in one group, got {described}.")


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
