"""Gaussian rings (shells in 3D) times harmonics: steerable functions of a continuous position."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from steerformer.groups import Group


class HarmonicFunctions(NamedTuple):
    r"""Functions that transform as one harmonic, $v(Rz) = \rho_J(R)\,v(z)$."""

    values: Float[Tensor, "function order *points"] | Complex[Tensor, "function order *points"]
    purity: Float[Tensor, "function"]
    r"""Equivariant fraction $\lambda$ of each response."""
    gain: Float[Tensor, "function frequency"]
    """Mean square of the equivariant part of the response to plane waves, from frequency 0 to Nyquist."""
    energy: Float[Tensor, "function"]
    """Mean square of the whole response to signals of the spectrum."""


@dataclass(frozen=True)
class Rings:
    r"""Gaussian rings times harmonics, $e^{-(|z|-r_p)^2/2w^2}\, Y_J(z/|z|)$, at a few radii $r_p$.

    A ring of radius 0 is a blob: it has no direction, so it exists for harmonic 0 only.

    >>> from steerformer import SO2
    >>> Rings(SO2, radii=(0.0, 1.0, 2.0)).functions(1, torch.randn(50, 2)).values.shape  # function, order, points
    torch.Size([2, 1, 50])
    """

    group: Group
    radii: tuple[float, ...]
    width: float = 0.6

    def __post_init__(self) -> None:
        object.__setattr__(self, "radii", tuple(float(radius) for radius in self.radii))
        if not self.radii or min(self.radii) < 0:
            raise ValueError(f"rings need one or more radii >= 0, got {self.radii}.")
        if not self.width > 0:
            raise ValueError(f"rings need a width > 0, got {self.width}.")

    def radii_of(self, harmonic: int) -> tuple[float, ...]:
        """Radii of the rings with this harmonic."""
        return tuple(radius for radius in self.radii if radius > 0 or harmonic == 0)

    def profile(self, radius: float | Float[Tensor, "..."], r: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Radial profile of the ring at ``radius``, at distance ``r`` from the center."""
        return torch.exp(-((r - radius) ** 2) / (2 * self.width**2))

    def functions(self, harmonic: int, points: Float[Tensor, "*points dim"]) -> HarmonicFunctions:
        """All rings with this harmonic at any points: exact, so purity is 1; responses are defined on grids only."""
        r = points.norm(dim=-1)
        Y = direction_harmonics(self.group, harmonic, points).movedim(-1, 0)
        rings = [self.profile(radius, r) * Y for radius in self.radii_of(harmonic)]
        values = torch.stack(rings) if rings else Y.new_zeros(0, *Y.shape)
        purity = torch.ones(len(rings), dtype=points.dtype, device=points.device)
        return HarmonicFunctions(
            values, purity, gain=purity.new_zeros(len(rings), 0), energy=purity.new_zeros(len(rings))
        )


def direction_harmonics(
    group: Group, harmonic: int, points: Float[Tensor, "*points dim"]
) -> Float[Tensor, "*points order"] | Complex[Tensor, "*points order"]:
    """Harmonics of the directions of ``points``; at the origin all but degree 0 are zero."""
    r = points.norm(dim=-1, keepdim=True)
    nonzero = r > 0
    Y = group.harmonics(harmonic, points / torch.where(nonzero, r, 1.0))
    return Y if harmonic == 0 else Y * nonzero
