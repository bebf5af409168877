"""Field types: which irreps the channels of a tensor hold, and how they transform under rotations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.fields.grids import interpolate_rotated, permute_axes
from steerformer.fields.parsing import checked_multiplicities, parse_multiplicities
from steerformer.fields.real_form import real_form
from steerformer.fields.selection import Selection, chosen_copies
from steerformer.groups import Group


@dataclass(frozen=True, repr=False, init=False)
class FieldType:
    r"""Multiplicity of each irrep in a field; a field is a plain real tensor ``(batch, channels, *space)``.

    Features are complex by default, tensors are real. The channel axis is ``(part, degree, order, copy)``, the last
    fastest: first all real parts, then all imaginary parts; within a part degree by degree; within a degree order by
    order. So ``channels = parts * sum(irrep_dim * multiplicity)`` with 2 parts. Parts are outermost, so that real and
    imaginary half are contiguous slices and complex arithmetic needs no copies. Real fields have one part: real scalars
    (a raw image, or invariants) in both groups, and for ``SO3``, whose irreps are real, fields of all degrees.

    A rotation acts by $[R f](x) = \rho(R)\, f(R^{-1}x)$.

    Args:
        group: :data:`~steerformer.SO2` for images, :data:`~steerformer.SO3` for volumes.
        multiplicities: copies of degree 0, 1, 2, ...; or a dictionary of degrees and copies, ``{0: 8, 2: 2}``; or a
            string, ``"8x0+4x1+2x2"``, for ``SO3`` also in the notation of e3nn, ``"8x0e+4x1o+2x2e"``. Rotations do not
            distinguish parities, so their letters are dropped: ``"4x1o+2x1e"``, polar and axial vectors, is ``"6x1"``.
        real: whether the field has no imaginary part, so that ``channels = sum(irrep_dim * multiplicity)``; the string
            ``"8x0+4x1 real"`` says the same. ``SO2`` has real scalars only, because a complex number of degree
            $k > 0$, which rotates by $e^{ik\theta}$, is the real irrep of dimension 2 (``docs/theory.md``).

    >>> from steerformer import SO3, FieldType
    >>> features = FieldType(SO3, (8, 4, 2))
    >>> features, features.channels
    (FieldType(SO3, '8x0+4x1+2x2'), 60)
    >>> FieldType(SO3, "8x0 + 4x1 + 2x2") == FieldType(SO3, {0: 8, 1: 4, 2: 2}) == features
    True
    >>> FieldType(SO3, "8x0e + 4x1o + 2x2e") == features
    True
    >>> real = FieldType(SO3, (8, 4, 2), real=True)
    >>> real, real.channels
    (FieldType(SO3, '8x0+4x1+2x2 real'), 30)
    """

    group: Group
    multiplicities: tuple[int, ...]
    real: bool
    channels: int = field(init=False, compare=False)
    """Length of the channel axis."""
    runs: tuple[tuple[int, int], ...] = field(init=False, compare=False)
    """(orders, copies) of consecutive degrees with equally many orders, merged so that one operation handles them."""

    def __init__(
        self, group: Group, multiplicities: Sequence[int] | Mapping[int, int] | str, *, real: bool = False
    ) -> None:
        if not isinstance(group, Group):
            raise TypeError(f"FieldType needs a group first (SO2 or SO3), got {group!r}.")
        if isinstance(multiplicities, str):
            multiplicities, said_real = parse_multiplicities(multiplicities, group)
            real = real or said_real
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "multiplicities", checked_multiplicities(multiplicities))
        object.__setattr__(self, "real", bool(real))
        if self.real and len(self.multiplicities) > 1 and not group.has_real_irreps:
            raise ValueError(
                f"real fields of {group} are scalars (degree 0), got multiplicities {self.multiplicities}; leave real "
                f"out: a complex number of degree k > 0 is the real irrep of dimension 2 already."
            )
        object.__setattr__(self, "runs", self._joined())
        object.__setattr__(self, "channels", self.parts * sum(orders * copies for orders, copies in self.runs))

    @classmethod
    def image(cls, group: Group, channels: int) -> "FieldType":
        """Type of a raw image or volume: ``channels`` real scalars, such as colors or MRI modalities.

        >>> from steerformer import SO2, FieldType
        >>> FieldType.image(SO2, 3)
        FieldType(SO2, '3xreal')
        """
        return cls(group, (channels,), real=True)

    @classmethod
    def vectors(cls, group: Group, copies: int, *, real: bool = False) -> "FieldType":
        r"""Type of ``copies`` vectors, $[Rv](x) = R\, v(R^{-1}x)$: degree 1; see :func:`~steerformer.to_cartesian`.

        >>> from steerformer import SO3, FieldType
        >>> FieldType.vectors(SO3, 2), FieldType.vectors(SO3, 2, real=True)
        (FieldType(SO3, '2x1'), FieldType(SO3, '2x1 real'))
        """
        return cls(group, (0, copies), real=real)

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees with at least one copy, in increasing order."""
        return tuple(degree for degree, copies in enumerate(self.multiplicities) if copies)

    @property
    def parts(self) -> int:
        """2 for complex fields (real and imaginary part), 1 for real fields."""
        return 1 if self.real else 2

    def multiplicity(self, degree: int) -> int:
        """Number of copies of ``degree``; 0 beyond the largest degree."""
        self.group.require_degree(degree)
        return self.multiplicities[degree] if degree < len(self.multiplicities) else 0

    def split(self, x: Float[Tensor, "batch channels *space"]) -> list[Float[Tensor, "batch part order copy *space"]]:
        """Views of the channel axis, one for each of :attr:`degrees`: ``(batch, part, order, copy, *space)``."""
        self.require_channels(x)
        shapes = [(self.group.irrep_dim(degree), self.multiplicities[degree]) for degree in self.degrees]
        pieces = x.unflatten(1, (self.parts, -1)).split([orders * copies for orders, copies in shapes], dim=2)
        return [piece.unflatten(2, shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def pack(self, pieces: Iterable[Float[Tensor, "batch part _ _ *space"]]) -> Float[Tensor, "batch channels *space"]:
        """Inverse of :meth:`split`."""
        packed = torch.cat([piece.flatten(2, 3) for piece in pieces], dim=2).flatten(1, 2)
        self.require_channels(packed)
        return packed

    @property
    def is_scalar(self) -> bool:
        """Whether the field has degree 0 only, so that rotations do not change its channels."""
        return self.degrees == (0,)

    @property
    def copies(self) -> int:
        """Total number of irreps: the sum of all multiplicities."""
        return sum(self.multiplicities)

    def __add__(self, other: "FieldType") -> "FieldType":
        """Type of two concatenated fields: multiplicities add degree by degree.

        This is the direct sum of the representations, up to the order of copies: :func:`~steerformer.concat` packs the
        fields to match. ``sum(types)`` adds several.

        >>> from steerformer import SO3, FieldType
        >>> FieldType(SO3, "8x0+4x1") + FieldType(SO3, "2x1+2x2")
        FieldType(SO3, '8x0+6x1+2x2')
        """
        if not isinstance(other, FieldType):
            return NotImplemented
        if self.group is not other.group:
            raise ValueError(f"only types of one group can be added, got {self!r} and {other!r}.")
        if self.real != other.real:
            raise ValueError(
                f"real and complex fields have different channels, got {self!r} and {other!r}; lift the real one "
                f"with Linear or Conv first."
            )
        pairs = zip_longest(self.multiplicities, other.multiplicities, fillvalue=0)
        return FieldType(self.group, [one + two for one, two in pairs], real=self.real)

    def __radd__(self, other: object) -> "FieldType":
        return self if other == 0 else NotImplemented  # sum() starts from 0

    def subtype(self, chosen: Selection) -> "FieldType":
        """Type of the field that :meth:`select` returns.

        >>> from steerformer import SO3, FieldType
        >>> features = FieldType(SO3, "8x0+4x1+2x2")
        >>> features.subtype((1, 2)), features.subtype({0: slice(3), 2: [1]})
        (FieldType(SO3, '4x1+2x2'), FieldType(SO3, '3x0+1x2'))
        """
        counts = {degree: len(copies) for degree, copies in chosen_copies(self.multiplicities, chosen).items()}
        return FieldType(self.group, counts, real=self.real)

    def select(
        self, x: Float[Tensor, "batch channels *space"], chosen: Selection
    ) -> Float[Tensor, "batch selected *space"]:
        """The field of chosen degrees, or of chosen copies of them; its type is :meth:`subtype`.

        Rotating and selecting commute. The degrees of the result are in increasing order, whatever the order in
        ``chosen``; copies are in the order chosen.

        Args:
            x: field of this type.
            chosen: a degree; several degrees; or for each degree its copies, as a slice or as indices:
                ``{0: slice(3), 2: [1]}`` are the first three scalars and the second copy of degree 2.

        >>> from steerformer import SO3, FieldType
        >>> features = FieldType(SO3, "8x0+4x1")
        >>> features.select(features.randn(2, 5), 1).shape == (2, FieldType(SO3, "4x1").channels, 5, 5, 5)
        True
        """
        copies = chosen_copies(self.multiplicities, chosen)
        pieces = dict(zip(self.degrees, self.split(x), strict=True))
        return self.subtype(copies).pack(pieces[degree][:, :, :, copies[degree]] for degree in sorted(copies))

    def matrix(self, R: Float[Tensor, "dim dim"]) -> Float[Tensor, "channels channels"]:
        r"""The real matrix $\rho(R)$ that acts on the channels of one position."""
        self.group.require_rotation(R)
        identity = torch.eye(self.channels, dtype=R.dtype, device=R.device)
        return self._rotate_channels(identity, R).mT

    def rotate(
        self, x: Float[Tensor, "batch channels *space"], R: Float[Tensor, "dim dim"], *, mode: str = "bilinear"
    ) -> Float[Tensor, "batch channels *rotated"]:
        r"""The rotated field $[R f](x) = \rho(R)\, f(R^{-1}x)$, about the center of the grid.

        Exact for the rotations of the grid, by multiples of 90 degrees, which permute voxels (and the side lengths of a
        grid that is not square). Any other rotation interpolates, with zeros outside the grid. Of a tensor without
        spatial axes, ``(batch, channels)``, only the channels are rotated.

        Args:
            x: field of this type.
            R: rotation matrix of the group.
            mode: interpolation, ``"bilinear"`` (trilinear for volumes) or ``"nearest"``.
        """
        self.require_channels(x)
        self.group.require_rotation(R)
        if x.ndim not in (2, 2 + self.group.dim):
            raise ValueError(
                f"a field of {self.group} has shape (batch, channels) or (batch, channels, {self.group.dim} spatial "
                f"axes), got {tuple(x.shape)}."
            )
        if R.ndim != 2:
            raise ValueError(f"rotate takes one rotation for the whole batch, got shape {tuple(R.shape)}.")
        R = R.to(device=x.device)
        is_exact = self.group.is_grid_rotation(R)
        R = R.round() if is_exact else R
        rotated = self._rotate_channels(x, R)
        if x.ndim == 2:
            return rotated
        return permute_axes(rotated, R) if is_exact else interpolate_rotated(rotated, R.to(x.dtype), mode)

    def randn(
        self,
        batch: int,
        size: int | Sequence[int] = (),
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "batch channels *space"]:
        """Standard normal noise in every channel; an integer ``size`` gives a square or cubic grid."""
        space = (size,) * self.group.dim if isinstance(size, int) else tuple(size)
        return torch.randn(batch, self.channels, *space, generator=generator, dtype=dtype, device=device)

    def require_channels(self, x: Tensor) -> None:
        """Raise ``ValueError`` unless ``x`` is floating-point and its axis 1 has the channels of this type."""
        if x.ndim < 2 or x.shape[1] != self.channels:
            advice = f"; a raw image has type FieldType.image({self.group}, {x.shape[1]})" if x.ndim > 1 else ""
            raise ValueError(f"{self!r} needs {self.channels} channels on axis 1, got shape {tuple(x.shape)}{advice}.")
        require_floats(x)

    def __str__(self) -> str:
        if self.real and self.is_scalar:
            return f"{self.multiplicities[0]}xreal"
        terms = "+".join(f"{self.multiplicities[degree]}x{degree}" for degree in self.degrees)
        return f"{terms} real" if self.real else terms

    def __repr__(self) -> str:
        return f"FieldType({self.group}, '{self}')"

    def _joined(self) -> tuple[tuple[int, int], ...]:
        merged: list[tuple[int, int]] = []
        for degree in self.degrees:
            orders, copies = self.group.irrep_dim(degree), self.multiplicities[degree]
            if merged and merged[-1][0] == orders:
                copies += merged.pop()[1]
            merged.append((orders, copies))
        return tuple(merged)

    def _rotate_channels(self, x: Tensor, R: Tensor) -> Tensor:
        if self.is_scalar:
            return x
        precise = R.to(torch.promote_types(torch.promote_types(R.dtype, x.dtype), torch.float32))
        rotated = []
        for degree, piece in zip(self.degrees, self.split(x), strict=True):
            rho = real_form(self.group.irrep(degree, precise)).to(x.dtype)[: self.parts, :, : self.parts]
            rotated.append(torch.einsum("poqi,bqi...->bpo...", rho, piece))
        return self.pack(rotated)


def require_field_type(value: object, layer: str) -> None:
    """Raise ``TypeError`` unless ``value`` is a :class:`FieldType`."""
    if not isinstance(value, FieldType):
        raise TypeError(
            f"{layer} needs field types, got {value!r}; write FieldType(SO2, (8, 4, 2)) for features, or "
            f"FieldType.image(SO2, 3) for an image of 3 channels (SO3 for volumes)."
        )


def require_floats(x: Tensor) -> None:
    """Raise ``ValueError`` unless ``x`` holds real floating-point numbers."""
    if not x.is_floating_point():
        advice = "torch.cat([x.real, x.imag], dim=1) packs both parts" if x.is_complex() else "convert with .float()"
        raise ValueError(f"a field is a tensor of real floating-point numbers, got {x.dtype}; {advice}.")
