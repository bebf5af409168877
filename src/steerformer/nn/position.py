"""Steerable relative positional encodings."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.constants import ExactConstants
from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.groups import GROUPS, Group
from steerformer.nn.exported import is_exported
from steerformer.nn.offsets import Lattice, from_integers, lattice_within, offset_points, to_integers
from steerformer.nn.ops import inside_transform, spread

Profile = Callable[[Tensor, int], Tensor]
RadialName = Literal["soft", "smooth", "paper"]
Radial = RadialName | Profile
_CORE = 0.6  # times the degree, in voxels
_SCALE = 2.0  # voxels


def inverse_square(r: Float[Tensor, "*batch"], degree: int) -> Float[Tensor, "*batch"]:
    """The paper's radial profile: $r^{-2}$ for all degrees, and 0 at 0."""
    return torch.where(r > 0, r, math.inf) ** -2


def soft_inverse_square(r: Float[Tensor, "*batch"], degree: int) -> Float[Tensor, "*batch"]:
    r"""The paper's radial profile, damped near 0: $r^{-2} (1 - e^{-(r / 0.6 \ell)^4})$.

    Close to the center the grid has too few voxels to distinguish high degrees from low ones (four neighbors cannot
    distinguish 4 from 0), so encodings are not equivariant there. The damped core grows with the degree.
    """
    core = -torch.expm1(-((r / (_CORE * degree)) ** 4)) if degree else 1
    return inverse_square(r, degree) * core


def smooth_inverse_square(r: Float[Tensor, "*batch"], degree: int) -> Float[Tensor, "*batch"]:
    r"""A smooth profile with the paper's decay, $(r/2)^\ell (1 + (r/2)^2)^{-(\ell + 2) / 2}$.

    Near 0 it is $r^\ell$, so that encodings of all degrees, 0 included, are smooth functions of the offset.
    """
    return (r / _SCALE) ** degree * (1 + (r / _SCALE) ** 2) ** (-degree / 2 - 1)


_PROFILES: dict[str, Profile] = {
    "soft": soft_inverse_square,
    "smooth": smooth_inverse_square,
    "paper": inverse_square,
}


class PositionalEncoding(ExactConstants):
    r"""Steerable relative positional encoding (paper, section 3.2, eqs. 18-19).

    $$P_\rho(x) = w_\rho\, \phi_\rho(r)\, Y_\rho(x/r), \qquad P_\rho(R x) = \rho(R)\, P_\rho(x)$$

    The transformation law (eq. 17) is necessary and sufficient for equivariant attention (theorem 1). Each copy of each
    degree has one learned weight $w_\rho$, complex or in real fields real. Parameters do not depend on the size of the
    grid.

    Args:
        field_type: type of the encoding.
        radial: radial profile $\phi$: ``"paper"`` for :func:`inverse_square`, ``"soft"`` for
            :func:`soft_inverse_square`, whose equivariance error at angles other than the grid's is two to twelve times
            smaller, ``"smooth"`` for :func:`smooth_inverse_square`, meant for keys behind a window
            (``Attention(key_window=)``), or a function of distances and the degree. Its value at distance 0 is used for
            degree 0 only: all other degrees are 0 there.
        spacing: voxel spacing along each axis, 1 if not given. Distances are in units of its geometric mean.

    Shape:
        - Input: $(*, d)$, offsets in voxels, with two coordinates for images, three for volumes.
        - Output: $(*, C)$ with $C$ = ``field_type.channels``.

    >>> import steerformer as sf, torch
    >>> encoding = sf.nn.PositionalEncoding(sf.FieldType(sf.SO2, (8, 4)))
    >>> encoding(torch.randn(100, 2)).shape
    torch.Size([100, 24])
    """

    def __init__(
        self, field_type: FieldType, *, radial: Radial = "soft", spacing: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        require_field_type(field_type, "PositionalEncoding")
        self.out_type, self.radial = field_type, _checked_profile(radial)
        self.spacing = checked_spacing(spacing, field_type.group.dim)
        self.weight = nn.Parameter(torch.randn(field_type.parts, field_type.copies))
        group, degrees = field_type.group, field_type.degrees
        with torch.device("cpu"):
            _require_finite(self.radial, degrees)
            harmonics = _harmonic_of_components(field_type)
            self._rows = steerable_basis(group, degrees, self.radial, torch.zeros(group.dim)).shape[-1]
        self.register_constant("_harmonics", harmonics)
        self._complex = self._rows > harmonics.shape[1]

    def forward(self, points: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch channels"]:
        """Encode offsets given in voxels; channels are those of a field of type ``out_type``."""
        return self.basis(points).to(self.weight) @ self.matrix().mT

    def basis(self, points: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch rows"]:
        r"""$\phi(r)\, Y_\rho(x/r)$ of all degrees: real parts and, where harmonics are complex, imaginary parts.

        Override it for another encoding, with the rows that :meth:`matrix` expects.
        """
        return steerable_basis(self.out_type.group, self.out_type.degrees, self.radial, points)

    def matrix(self) -> Float[Tensor, "channels rows"]:
        """The weights as a matrix from the rows of :meth:`basis` to channels."""
        harmonics = self.constant("_harmonics", self.weight)
        re, *rest = (spread(self.out_type, part)[: len(harmonics), None] * harmonics for part in self.weight)
        if self.out_type.real:  # complex harmonics of real scalars are 1, without an imaginary part
            return torch.cat([re, torch.zeros_like(re)], dim=1) if self._complex else re
        (im,) = rest
        if not self._complex:
            return torch.cat([re, im])
        return torch.cat([torch.cat([re, -im], dim=1), torch.cat([im, re], dim=1)])

    def table(self, space: tuple[int, ...]) -> Float[Tensor, "*offsets rows"]:
        """:meth:`basis` of all offsets on a grid of this size: entry ``t`` of an axis has offset ``n - 1 - t``.

        Tables are cached, shared by all layers, and not part of the state dict.
        """
        return self.table_on(lattice_within(space), self.spacing or (1.0,) * self.out_type.group.dim)

    def table_on(self, lattice: Lattice, units: Sequence[float]) -> Float[Tensor, "*offsets rows"]:
        """:meth:`basis` of all offsets between two grids; entries are ``units`` apart, in the units of ``spacing``."""
        group, degrees = self.out_type.group, self.out_type.degrees
        mean = math.prod(self.spacing) ** (1 / len(self.spacing)) if self.spacing else 1.0
        units, like = tuple(unit / mean for unit in units), self.weight.detach()
        if type(self).basis is PositionalEncoding.basis and not is_exported():
            if not torch.compiler.is_compiling() and not inside_transform():
                return _shared_table(group, degrees, self.radial, lattice, units, like.dtype, like.device)
            name = next((name for name, known in _PROFILES.items() if known is self.radial), None)
            if name and torch.compiler.is_compiling():
                return offset_table(group.name, degrees, name, to_integers(lattice), units, self._rows, like)
        return self.basis(offset_points(lattice, units)).to(like)  # torch operations only, and no cache

    def require_same_table(self, other: "PositionalEncoding") -> None:
        """Raise ``ValueError`` unless both encodings have the same table."""
        if (type(self), self.radial, self.spacing) != (type(other), other.radial, other.spacing):
            raise ValueError("encodings of keys and values share one table: give both the same radial and spacing.")

    def extra_repr(self) -> str:
        name = getattr(self.radial, "__name__", repr(self.radial))
        return f"{self.out_type}, radial={name}" + (f", spacing={self.spacing}" if self.spacing else "")


def steerable_basis(
    group: Group, degrees: Sequence[int], radial: Profile, points: Float[Tensor, "*batch dim"]
) -> Float[Tensor, "*batch rows"]:
    """Radial profile times harmonics of every degree, as real rows; see :meth:`PositionalEncoding.basis`."""
    r = torch.linalg.vector_norm(points, dim=-1)
    nonzero = r[..., None] > 0
    arbitrary = torch.eye(group.dim, dtype=points.dtype, device=points.device)[0]
    directions = torch.where(nonzero, points / torch.where(nonzero, r[..., None], 1), arbitrary)
    pieces = []
    for degree in degrees:
        strength = radial(r, degree)[..., None]
        strength = torch.where(nonzero, strength, 0) if degree else strength
        pieces.append([strength * part for part in group.harmonic_parts(degree, directions)])
    return torch.cat([piece for parts in zip(*pieces, strict=True) for piece in parts], dim=-1)


@lru_cache(maxsize=32)
def _shared_table(
    group: Group,
    degrees: tuple[int, ...],
    radial: Profile,
    lattice: Lattice,
    units: tuple[float, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    # leave the modes of the first caller: later callers share the table
    with torch.device("cpu"), torch.inference_mode(False), torch.no_grad(), unset_fake_temporarily():
        return steerable_basis(group, degrees, radial, offset_points(lattice, units)).to(device=device, dtype=dtype)


def _harmonic_of_components(field_type: FieldType) -> Float[Tensor, "component order"]:
    """One-hot harmonic of each channel of one part."""
    rows: list[int] = []
    for degree in field_type.degrees:
        first, orders = len(set(rows)), field_type.group.irrep_dim(degree)
        rows += [first + order for order in range(orders) for _ in range(field_type.multiplicity(degree))]
    return torch.eye(len(set(rows)), dtype=torch.float64)[rows]


def _require_finite(radial: Profile, degrees: Sequence[int]) -> None:
    distances = torch.cat([torch.zeros(1), torch.linspace(0.05, 500, 1000)]).double()
    for degree in degrees:
        values = radial(distances, degree)
        if (
            not isinstance(values, Tensor)
            or values.shape != distances.shape
            or not values[degree > 0 :].isfinite().all()
        ):
            raise ValueError(
                f"a radial profile returns a finite number for each distance (at 0 only for degree 0), but "
                f"{radial!r} does not for degree {degree}."
            )


@torch.library.custom_op("steerformer::offset_table", mutates_args=())
def offset_table(
    group: str,
    degrees: Sequence[int],
    radial: str,
    lattice: Sequence[int],
    units: Sequence[float],
    rows: int,
    like: Tensor,
) -> Tensor:
    """The table as a custom operator, opaque to torch.compile and valid for every grid size."""
    key = (GROUPS[group], tuple(degrees), _PROFILES[radial], from_integers(lattice), tuple(units))
    return _shared_table(*key, like.dtype, like.device).clone()  # compiled code may overwrite it


@offset_table.register_fake
def _table_shape(
    group: str,
    degrees: Sequence[int],
    radial: str,
    lattice: Sequence[int],
    units: Sequence[float],
    rows: int,
    like: Tensor,
) -> Tensor:
    return like.new_empty(*(axis.length for axis in from_integers(lattice)), rows)


def _checked_profile(radial: Radial) -> Profile:
    if isinstance(radial, nn.Module):
        raise ValueError("radial is a fixed function, got a module; to learn one, override PositionalEncoding.basis.")
    if callable(radial):
        return radial
    if radial not in _PROFILES:
        raise ValueError(
            f"radial is 'soft', 'smooth', 'paper' or a function of distances and the degree, got {radial!r}."
        )
    return _PROFILES[radial]


def checked_spacing(spacing: Sequence[float] | None, dim: int) -> tuple[float, ...] | None:
    """The spacing as numbers; ``ValueError`` unless it has a positive number for each axis."""
    if spacing is None:
        return None
    steps = tuple(as_number(step) for step in spacing)
    if len(steps) != dim or not all(0 < step < math.inf for step in steps):
        raise ValueError(f"spacing is one positive number for each of {dim} axes, got {spacing!r}.")
    return steps
