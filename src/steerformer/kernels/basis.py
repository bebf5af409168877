"""Basis of steerable kernels between two field types: harmonic functions times couplings."""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType
from steerformer.groups import Group
from steerformer.kernels.rings import HarmonicFunctions, Rings
from steerformer.kernels.voxels import VoxelKernels


@runtime_checkable
class HarmonicSource(Protocol):
    """Source of a basis's harmonic functions: :class:`VoxelKernels` or :class:`RingsAtPoints`."""

    def __hash__(self) -> int: ...

    @property
    def group(self) -> Group: ...

    def functions(self, harmonic: int) -> HarmonicFunctions: ...


@dataclass(frozen=True, eq=False)
class RingsAtPoints:
    """Continuous :class:`Rings` evaluated at given points, in float64."""

    rings: Rings
    points: Float[Tensor, "*points dim"]

    def __post_init__(self) -> None:
        if self.points.shape[-1:] != (self.group.dim,):
            raise ValueError(
                f"points of {self.group} have {self.group.dim} coordinates, got {tuple(self.points.shape)}."
            )

    @property
    def group(self) -> Group:
        return self.rings.group

    def functions(self, harmonic: int) -> HarmonicFunctions:
        return self.rings.functions(harmonic, self.points.detach().double())


@dataclass(frozen=True)
class KernelPath:
    """One basis kernel: the degrees it connects, its harmonic and radial profile, and its response.

    ``gain`` is the energy of the equivariant part at each frequency; ``energy`` is that of the whole response to the
    spectrum, and ``purity`` its equivariant fraction.
    """

    degree_out: int
    degree_in: int
    harmonic: int
    profile: int
    purity: float
    gain: tuple[float, ...] = field(repr=False)
    energy: float = field(repr=False)


class KernelBasis(ExactConstants):
    r"""Basis of all steerable kernels between two field types (paper, eqs. 1-2).

    $$K(z) = \sum_p w_p\, \varphi_p(z), \qquad K(Rz) = \rho_{out}(R)\, K(z)\, \rho_{in}(R)^{-1}$$

    Each pair of degrees has one complex weight per copy out, copy in and :class:`KernelPath`; a pair without path has
    none. Between real fields the weights are real. Each basis kernel of a voxel source has unit norm or unit response,
    according to the source's ``normalization``.

    Calling the basis with weights of shape ``(weight_parts, num_weights)`` returns the kernel, a real tensor
    ``(out_type.channels, in_type.channels, *points)``: the weight of a plain torch convolution. Weights are ordered by
    pair of degrees (out, then in), within a pair as ``(copy out, copy in, path)``. The basis is stored in float64 and
    cast to the module's dtype, so that ``.double()`` is exact to double precision.

    >>> from steerformer import SO3, FieldType
    >>> from steerformer.kernels import VoxelKernels
    >>> scalars, vectors = FieldType.image(SO3, 1), FieldType(SO3, "2x1")
    >>> basis = KernelBasis(scalars, vectors, VoxelKernels(SO3, (5, 5, 5)))
    >>> [(path.harmonic, path.profile) for path in basis.paths]
    [(1, 0), (1, 1)]
    >>> basis(torch.randn(basis.weight_parts, basis.num_weights)).shape
    torch.Size([12, 1, 5, 5, 5])
    """

    def __init__(self, in_type: FieldType, out_type: FieldType, source: HarmonicSource) -> None:
        super().__init__()
        groups = {in_type.group, out_type.group, source.group}
        if len(groups) > 1:
            raise ValueError(
                f"a kernel needs one group, got {in_type!r} in, {out_type!r} out and functions of {source.group}; "
                f"use SO2 for images, SO3 for volumes."
            )
        self.in_type, self.out_type, self.source = in_type, out_type, source
        self.pairs = [(out, inp) for out in out_type.degrees for inp in in_type.degrees]
        with torch.device("cpu"):  # values are needed, even if the module is built on "meta"
            coupled = [_coupled(source, *pair) for pair in self.pairs]
        self.paths = tuple(path for paths, _ in coupled for path in paths)
        self.points_shape = tuple(coupled[0][1].shape[3:])
        self.weight_parts = 1 if in_type.real and out_type.real else 2
        self.weight_shapes = [
            (out_type.multiplicity(out), in_type.multiplicity(inp), len(paths))
            for (out, inp), (paths, _) in zip(self.pairs, coupled, strict=True)
        ]
        self.num_weights = sum(math.prod(shape) for shape in self.weight_shapes)
        self.function_parts = 2 if coupled[0][1].is_complex() else 1
        for i, (_, values) in enumerate(coupled):
            self.register_constant(f"_pair{i}", _complex_columns(values))

    def forward(self, weights: Float[Tensor, "part weight"]) -> Float[Tensor, "out in *points"]:
        """Assemble the real kernel from weights."""
        kernel = self.assemble(weights)
        return real_kernel(kernel, out_real=self.out_type.real, in_real=self.in_type.real)

    def assemble(self, weights: Float[Tensor, "part weight"]) -> Float[Tensor, "part half_out half_in *points"]:
        """Real and imaginary part of the complex kernel, with channels ordered as in the field types.

        Between real fields the kernel is real, without an imaginary part.
        """
        blocks = iter(self._block(i, piece) for i, piece in enumerate(self.split(weights)))
        rows = [torch.cat([next(blocks) for _ in self.in_type.degrees], dim=2) for _ in self.out_type.degrees]
        return torch.cat(rows, dim=1)

    def functions(self, i: int, weights: Tensor) -> Float[Tensor, "part path order_out order_in *points"]:
        """Basis kernels between the degrees ``pairs[i]``, without the imaginary part if there is none.

        Where they have no values yet, in a layer built on the meta device, they are created as ``weights`` are.
        """
        out, inp = (self.in_type.group.irrep_dim(degree) for degree in self.pairs[i])
        paths = self.weight_shapes[i][2]
        columns = self.constant(f"_pair{i}", weights)[:paths].view(paths, 2, out, inp, *self.points_shape)
        return columns.movedim(1, 0)[: self.function_parts]

    def split(self, weights: Float[Tensor, "part weight"]) -> list[Float[Tensor, "part _ _ _"]]:
        """Weights of each of :attr:`pairs`, ``(part, copy out, copy in, path)``."""
        if weights.shape != (self.weight_parts, self.num_weights):
            expected = (self.weight_parts, self.num_weights)
            raise ValueError(f"this basis takes weights of shape {expected}, got {tuple(weights.shape)}.")
        pieces = weights.split([math.prod(shape) for shape in self.weight_shapes], dim=1)
        return [piece.unflatten(1, shape) for piece, shape in zip(pieces, self.weight_shapes, strict=True)]

    def _block(self, i: int, weights: Tensor) -> Tensor:
        """Kernel of one pair of degrees, ``(part, orders_out * copies_out, orders_in * copies_in, *points)``."""
        out, inp = (self.in_type.group.irrep_dim(degree) for degree in self.pairs[i])
        copies_out, copies_in, paths = self.weight_shapes[i]
        values = self.constant(f"_pair{i}", weights)  # path columns, 2 * orders_out * orders_in * points
        weights = weights.flatten(1, 2)
        if self.weight_parts == 1:
            kernel = weights[0] @ values[:paths, : values.shape[1] // 2]
        else:  # (a + ib)(c + id) as one product of both parts of the weight with both parts of the function
            kernel = torch.cat([weights[0], weights[1]], dim=1) @ values
        kernel = kernel.reshape(copies_out, copies_in, self.weight_parts, out, inp, *self.points_shape)
        return kernel.permute(2, 3, 0, 4, 1, *range(5, kernel.ndim)).flatten(3, 4).flatten(1, 2)

    def extra_repr(self) -> str:
        worst = 1 - min((path.purity for path in self.paths), default=1.0)
        return f"{self.in_type} -> {self.out_type}, {len(self.paths)} paths, impurity at most {worst:.1e}"


def real_kernel(
    kernel: Float[Tensor, "part half_out half_in *points"], *, out_real: bool, in_real: bool
) -> Float[Tensor, "out in *points"]:
    """Real form of a complex kernel, without the rows or columns of absent imaginary parts."""
    if len(kernel) == 1:
        return kernel[0]
    re, im = kernel
    first = re if in_real else torch.cat([re, -im], dim=1)
    if out_real:
        return first
    return torch.cat([first, im if in_real else torch.cat([im, re], dim=1)], dim=0)


def _coupled(source: HarmonicSource, degree_out: int, degree_in: int) -> tuple[tuple[KernelPath, ...], Tensor]:
    """Paths between two degrees, and their kernels ``(path, order_out, order_in, *points)``."""
    return (_couple_once if isinstance(source, VoxelKernels) else _couple)(source, degree_out, degree_in)


def _couple(source: HarmonicSource, degree_out: int, degree_in: int) -> tuple[tuple[KernelPath, ...], Tensor]:
    paths: list[KernelPath] = []
    kernels: list[Tensor] = []
    for harmonic in source.group.harmonic_degrees(degree_out, degree_in):
        values, *shares = source.functions(harmonic)
        coupling = source.group.coupling(degree_out, harmonic, degree_in).to(values)
        kernels.append(torch.einsum("ohi,ph...->poi...", coupling, values))
        for p, (purity, gain, energy) in enumerate(zip(*(each.tolist() for each in shares), strict=True)):
            paths.append(KernelPath(degree_out, degree_in, harmonic, p, purity, tuple(gain), energy))
    return tuple(paths), torch.cat(kernels)


_couple_once = lru_cache(maxsize=512)(_couple)  # voxel kernels are hashable, so all layers share them


def _complex_columns(values: Tensor) -> Tensor:
    """Real form for products with weights: rows for both parts of the weight, columns for both parts of the result."""
    flat = values.flatten(1)
    re, im = (flat.real, flat.imag) if flat.is_complex() else (flat, torch.zeros_like(flat))
    return torch.cat([torch.cat([re, im], dim=1), torch.cat([-im, re], dim=1)])
