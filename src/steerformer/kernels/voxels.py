"""Steerable kernels on a voxel grid, in three families: sampled, fitted and purest."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, prod
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from steerformer.fields import as_number, is_integer, permute_axes
from steerformer.groups import Group
from steerformer.kernels.purity import Array, GridForms
from steerformer.kernels.rings import HarmonicFunctions, Rings
from steerformer.kernels.spectrum import Spectrum

Family = Literal["sampled", "fitted", "purest"]
Normalization = Literal["norm", "response"]
FAMILIES: tuple[Family, ...] = get_args(Family)
DEFAULT_SPECTRUM = Spectrum()
_MOST_VOXELS = 6000  # the fit solves a linear system of this size


@dataclass(frozen=True)
class VoxelKernels:
    r"""Steerable kernels of one harmonic each on a voxel grid, in three families.

    All are exact under the rotations of the grid. They differ at other angles and in their extent:

    - ``"sampled"``: Gaussian rings times harmonic, sampled at voxel centers;
    - ``"fitted"``: the voxel kernels whose response to signals of the spectrum is closest to that of the
      continuous rings, $v = T^{-1} b$;
    - ``"purest"``: the kernels of largest purity, $v = T^{-1}(a(|z|)\, Y_J(\hat z))$, purest first.

    Args:
        group: rotation group.
        size: voxels along each axis, odd or even.
        spacing: voxel spacing along each axis, rounded to six digits; 1 if not given.
        dilation: distance between neighboring samples of the kernel, in voxels.
        family: ``"sampled"``, ``"fitted"`` or ``"purest"``.
        max_impurity: largest impurity $1-\lambda$ of the kernels.
        normalization: ``"norm"``: unit sum of squares; ``"response"``: unit variance of the response to the spectrum.
        spectrum: signals that purity, fit and response refer to; its unit is the largest step between samples.
        radii: radii of the rings, in the units of ``spacing``; by default one voxel apart, up to the outermost voxels.

    >>> from steerformer import SO2
    >>> kernels = VoxelKernels(SO2, (5, 5), family="purest")
    >>> [len(kernels.functions(J).values) for J in range(6)]
    [3, 2, 2, 1, 1, 0]
    """

    group: Group
    size: tuple[int, ...]
    spacing: tuple[float, ...] | None = None
    dilation: int = 1
    family: Family = "fitted"
    max_impurity: float = 1e-2
    normalization: Normalization = "norm"
    spectrum: Spectrum = DEFAULT_SPECTRUM
    radii: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        dim, name = self.group.dim, self.group.name
        for field in ("size", "spacing", "radii"):
            value = getattr(self, field)
            if isinstance(value, Iterable):
                object.__setattr__(self, field, tuple(value))
            elif value is not None:
                object.__setattr__(self, field, (value,) if field == "radii" else (value,) * dim)
        if len(self.size) != dim or not all(is_integer(n, least=1) for n in self.size):
            raise ValueError(f"a kernel of {name} has {dim} sizes, integers >= 1, got {self.size}.")
        if self.spacing is not None and (
            len(self.spacing) != dim or not all(0 < as_number(step) < inf for step in self.spacing)
        ):
            raise ValueError(f"the voxel spacing of {name} is {dim} lengths > 0, got {self.spacing}.")
        if self.spacing is not None:  # rounding errors of float32 files would make equal sides unequal
            object.__setattr__(self, "spacing", tuple(float(f"{step:.6g}") for step in self.spacing))
        if self.radii is not None and (
            not self.radii or not all(0 <= as_number(radius) < inf for radius in self.radii)
        ):
            raise ValueError(f"radii of rings are one or more lengths >= 0, got {self.radii}.")
        if not is_integer(self.dilation, least=1):
            raise ValueError(f"the dilation of a kernel is an integer >= 1, got {self.dilation!r}.")
        object.__setattr__(self, "dilation", int(self.dilation))
        for value, allowed in ((self.family, Family), (self.normalization, Normalization)):
            if value not in get_args(allowed):
                raise ValueError(f"expected one of {get_args(allowed)}, got {value!r}.")
        if not 0 < as_number(self.max_impurity) <= 1:
            raise ValueError(f"max_impurity is an impurity, above 0 and at most 1, got {self.max_impurity!r}.")
        if not isinstance(self.spectrum, Spectrum):
            raise ValueError(f"the spectrum is a Spectrum, such as Spectrum('natural'), got {self.spectrum!r}.")
        if prod(self.size) > _MOST_VOXELS:
            raise ValueError(f"a kernel has at most {_MOST_VOXELS} voxels, got {prod(self.size)} ({self.size}).")

    def functions(self, harmonic: int) -> HarmonicFunctions:
        """Kernels of this family and harmonic that are pure enough, in float64; there may be none."""
        with torch.device("cpu"):  # computed with numpy
            return HarmonicFunctions(*(shared.clone() for shared in _functions(self, harmonic)))

    @property
    def rotations(self) -> list[Tensor]:
        """Rotations of the grid that map this kernel's box of voxels to itself, including its spacing."""
        lengths = torch.tensor([self.size, self.steps], dtype=torch.float64)
        return [R for R in self.group.grid_rotations() if torch.equal(lengths @ R.abs().mT, lengths)]

    @property
    def voxel_length(self) -> float:
        """Distance between rings: the geometric mean of the spacing."""
        return float(prod(self.spacing) ** (1 / self.group.dim)) if self.spacing else 1.0

    @property
    def resolution(self) -> float:
        """Unit of length of the spectrum: the largest step, which is the finest detail that all axes resolve."""
        return max(self.steps)

    @property
    def steps(self) -> tuple[float, ...]:
        """Distance between the kernel's samples along each axis."""
        return tuple(self.dilation * length for length in self.spacing or (1.0,) * self.group.dim)

    @property
    def rings(self) -> Rings:
        """Continuous rings that ``"sampled"`` and ``"fitted"`` kernels approximate."""
        step = self.voxel_length * self.dilation
        halves = [(n - 1) / 2 * length for n, length in zip(self.size, self.steps, strict=True) if n > 1]
        last = prod(halves) ** (1 / len(halves)) if halves else 0.0
        inner = (last - i * step for i in range(int(last / step + 1e-6), -1, -1))
        radii = self.radii or tuple(radius if radius > 1e-6 * step else 0.0 for radius in inner)
        return Rings(self.group, radii, 0.6 * step)


@lru_cache(maxsize=4)
def _forms(kernels: VoxelKernels) -> GridForms:
    return GridForms(kernels.size, kernels.steps, kernels.rings, kernels.spectrum, unit=kernels.resolution)


@lru_cache(maxsize=1024)
def _functions(kernels: VoxelKernels, harmonic: int) -> HarmonicFunctions:
    # families, bounds of impurity and normalizations share the forms of one grid
    forms = _forms(replace(kernels, family="fitted", max_impurity=1.0, normalization="norm"))
    construct = {"sampled": forms.sampled, "fitted": forms.fitted, "purest": forms.purest}[kernels.family]
    raw = construct(harmonic)
    v = _symmetrized(kernels, harmonic, raw)
    norm = (np.abs(v) ** 2).sum(axis=(0, 1))
    exists = norm > 1e-12 * (np.abs(raw) ** 2).sum(axis=(0, 1))  # otherwise symmetry leaves only rounding errors
    v, norm = v[:, :, exists], norm[exists]
    equivariant, total = forms.energies(harmonic, v)
    purity = equivariant / total
    keep = 1 - purity <= kernels.max_impurity
    scale = total if kernels.normalization == "response" else norm
    values = torch.from_numpy(v[:, :, keep] / np.sqrt(scale[keep]))
    values = values.permute(2, 1, 0).unflatten(2, kernels.size).contiguous()
    gain = forms.gain(harmonic, v) / scale[:, None]
    return HarmonicFunctions(values, *(torch.from_numpy(each[keep]) for each in (purity, gain, total / scale)))


def _symmetrized(kernels: VoxelKernels, harmonic: int, v: Array) -> Array:
    """Average over the rotations of the box, which removes rounding errors of the solve."""
    field = torch.from_numpy(np.ascontiguousarray(v.transpose(2, 1, 0))).unflatten(2, kernels.size)
    rotations = kernels.rotations
    irreps = kernels.group.irrep(harmonic, torch.stack(rotations))
    rotated = [
        permute_axes(torch.einsum("on,kn...->ko...", rho, field), R) for rho, R in zip(irreps, rotations, strict=True)
    ]
    return torch.stack(rotated).mean(dim=0).flatten(2).permute(2, 1, 0).numpy()
