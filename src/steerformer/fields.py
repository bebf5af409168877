"""Field types: which irreps the channels of a tensor hold, and how they transform under rotations."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import nan
from numbers import Integral
from typing import SupportsFloat, cast

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor

from steerformer.groups import Group

_MOST_DEGREE = 256


@dataclass(frozen=True, repr=False, init=False)
class FieldType:
    r"""Multiplicity of each irrep in a field; a field is a plain real tensor ``(batch, channels, *space)``.

    Features are complex, tensors are real. The channel axis is ``(part, degree, order, copy)``, the last fastest:
    first all real parts, then all imaginary parts; within a part degree by degree; within a degree order by order. So
    ``channels = 2 * sum(irrep_dim * multiplicity)``. Parts are outermost, so that real and imaginary half are
    contiguous slices and complex arithmetic needs no copies. A field of real scalars (a raw image, or invariants) has
    degree 0, no imaginary part, and one channel per copy.

    A rotation acts by $[R f](x) = \rho(R)\, f(R^{-1}x)$.

    Args:
        group: :data:`~steerformer.SO2` for images, :data:`~steerformer.SO3` for volumes.
        multiplicities: copies of degree 0, 1, 2, ..., or a string such as ``"8x0+4x1+2x2"``.
        real: whether the field consists of real scalars; see :meth:`image`.

    >>> from steerformer import SO3, FieldType
    >>> features = FieldType(SO3, (8, 4, 2))
    >>> features, features.channels
    (FieldType(SO3, '8x0+4x1+2x2'), 60)
    >>> FieldType(SO3, "8x0 + 4x1 + 2x2") == features
    True
    """

    group: Group
    multiplicities: tuple[int, ...]
    real: bool
    channels: int = field(init=False, compare=False)
    """Length of the channel axis."""
    runs: tuple[tuple[int, int], ...] = field(init=False, compare=False)
    """(orders, copies) of consecutive degrees with equally many orders, merged so that one operation handles them."""

    def __init__(self, group: Group, multiplicities: Sequence[int] | str, *, real: bool = False) -> None:
        if not isinstance(group, Group):
            raise TypeError(f"FieldType needs a group first (SO2 or SO3), got {group!r}.")
        if isinstance(multiplicities, str):
            multiplicities, said_real = _parse(multiplicities)
            real = real or said_real
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "multiplicities", _checked(multiplicities))
        object.__setattr__(self, "real", bool(real))
        if self.real and len(self.multiplicities) > 1:
            raise ValueError(f"real fields are scalars (degree 0), got multiplicities {self.multiplicities}.")
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

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees with at least one copy, in increasing order."""
        return tuple(degree for degree, copies in enumerate(self.multiplicities) if copies)

    @property
    def parts(self) -> int:
        """2 for complex fields (real and imaginary part), 1 for real scalars."""
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
    def copies(self) -> int:
        """Total number of irreps: the sum of all multiplicities."""
        return sum(self.multiplicities)

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
        return permute_axes(rotated, R) if is_exact else _resample(rotated, R.to(x.dtype), mode)

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
        if self.real:
            return f"{self.multiplicities[0]}xreal"
        return "+".join(f"{self.multiplicities[degree]}x{degree}" for degree in self.degrees)

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
        if self.real:
            return x
        precise = R.to(torch.promote_types(torch.promote_types(R.dtype, x.dtype), torch.float32))
        rotated = []
        for degree, piece in zip(self.degrees, self.split(x), strict=True):
            rho = real_form(self.group.irrep(degree, precise)).to(x.dtype)
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


def is_integer(value: object, *, least: int) -> bool:
    """Whether ``value`` is an integer >= ``least``; accepts numpy's and torch.export's integers, but not booleans."""
    whole = isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)
    return whole and cast(int, value) >= least


def as_number(value: object) -> float:
    """``value`` as a float, or NaN if it is not a number, so that every range check fails."""
    return float(value) if isinstance(value, SupportsFloat) else nan


def real_form(
    matrix: Complex[Tensor, "*batch out in"] | Float[Tensor, "*batch out in"],
) -> Float[Tensor, "*batch 2 out 2 in"]:
    r"""Real form of a complex matrix $A + iB$, acting on both parts: $\begin{pmatrix} A & -B \\ B & A\end{pmatrix}$."""
    re = matrix.real
    im = matrix.imag if matrix.is_complex() else torch.zeros_like(matrix)
    return torch.stack([torch.stack([re, -im], dim=-2), torch.stack([im, re], dim=-2)], dim=-4)


def voxel_coordinates(size: Sequence[int], spacing: Sequence[float] | None = None) -> Float[Tensor, "*space dim"]:
    """Float64 coordinates of all voxels in tensor-axis order, with the origin at the center of the grid."""
    steps = [1.0] * len(size) if spacing is None else spacing
    axes = [(torch.arange(n, dtype=torch.float64) - (n - 1) / 2) * step for n, step in zip(size, steps, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def permute_axes(x: Tensor, grid: Tensor) -> Tensor:
    """Permute the voxels of ``(batch, channels, *space)`` by a signed permutation matrix ``grid`` of the axes."""
    source = grid.abs().argmax(dim=1).tolist()
    x = x.permute(0, 1, *(2 + axis for axis in source))
    return x.flip([2 + i for i, axis in enumerate(source) if grid[i, axis] < 0])


def sample_at(
    x: Float[Tensor, "batch channels *space"], points: Float[Tensor, "batch *target dim"], *, mode: str = "bilinear"
) -> Float[Tensor, "batch channels *target"]:
    """Values of a map at ``points``, in voxels from the center of the grid along each axis; zero outside.

    ``mode`` is ``"bilinear"`` (trilinear for volumes) or ``"nearest"``.
    """
    x = F.pad(x, [int(n == 1) for n in reversed(x.shape[2:]) for _ in (0, 1)])  # one voxel has no extent to divide by
    half = torch.tensor([(n - 1) / 2 for n in x.shape[2:]], dtype=x.dtype, device=x.device)
    grid = (points / half).flip(-1)  # grid_sample takes the last axis first
    return F.grid_sample(x, grid, mode=mode, align_corners=True)


def _resample(x: Tensor, R: Tensor, mode: str) -> Tensor:
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"rotate interpolates 'bilinear' or 'nearest', got {mode!r}.")
    sources = voxel_coordinates(x.shape[2:]).to(x) @ R  # row vectors: R^-1 x
    return sample_at(x, sources.expand(x.shape[0], *sources.shape), mode=mode)


def _checked(copies: object) -> tuple[int, ...]:
    if not isinstance(copies, Iterable) or isinstance(copies, (Mapping, Set, bytes)):
        raise TypeError(f"a field type needs the multiplicity of each degree, such as (8, 4, 2), got {copies!r}.")
    counts: list[int] = []
    for degree, count in enumerate(copies):
        if not is_integer(count, least=0):
            raise ValueError(f"the multiplicity of degree {degree} is an integer >= 0, got {count!r}.")
        counts.append(int(count))
    while counts and counts[-1] == 0:
        counts.pop()
    if not counts:
        raise ValueError("a field type needs at least one copy of one degree, got none.")
    return tuple(counts)


def _parse(text: str) -> tuple[list[int], bool]:
    words = text.replace(" ", "").split("+")
    if re.fullmatch(r"\d+xreal", words[0]) and len(words) == 1:
        return [int(words[0].removesuffix("xreal"))], True
    counts: dict[int, int] = {}
    for word in words:
        if not re.fullmatch(r"\d+x\d+", word):
            raise ValueError(
                f"cannot parse {word!r} in field type {text!r}; write copies x degree, such as '8x0+4x1', or '3xreal'."
            )
        copies, degree = map(int, word.split("x"))
        if degree > _MOST_DEGREE:
            raise ValueError(f"the largest degree of a field type is {_MOST_DEGREE}, got {degree} in {text!r}.")
        if degree in counts:
            raise ValueError(f"degree {degree} occurs twice in field type {text!r}.")
        counts[degree] = copies
    return [counts.get(degree, 0) for degree in range(max(counts) + 1)], False
