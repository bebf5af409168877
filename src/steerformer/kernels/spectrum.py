"""Isotropic power spectrum of signals, and integrals over it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Kind = Literal["gaussian", "natural"]
_OUTER_SCALE = 64.0  # voxels; without it 1/|w|^2 has infinite energy


@dataclass(frozen=True)
class Spectrum:
    r"""Isotropic power spectrum $S(|\omega|)$ of the signals a kernel will see.

    Args:
        kind: ``"gaussian"``: white noise smoothed by a Gaussian, $S = e^{-\sigma^2\omega^2}$; ``"natural"``: the
            $1/|\omega|^2$ of natural images under the same smoothing, constant beyond 64 voxels.
        sigma: standard deviation of the smoothing, in voxels.
        noise: variance of white noise added to the signal's unit variance. Fitted and purest kernels suppress it; it
            also separates kernels that would otherwise be equally pure, which makes them reproducible.
    """

    kind: Kind = "gaussian"
    sigma: float = 1.0
    noise: float = 1e-5

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"a spectrum is one of {get_args(Kind)}, got {self.kind!r}.")
        if not 0.1 <= self.sigma <= 100:
            raise ValueError(f"the smoothing of a spectrum has a sigma of 0.1 to 100 voxels, got {self.sigma}.")
        if not self.noise >= 1e-9:
            raise ValueError(f"the noise is a variance >= 1e-9 (below, rounding dominates), got {self.noise}.")

    def quadrature(self, dim: int, *, unit: float, reach: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        r"""Nodes $|\omega|$ and weights for $\int S(|\omega|)\, g(|\omega|)\, d\omega$ in ``dim`` dimensions.

        Args:
            dim: number of spatial axes.
            unit: length of a voxel.
            reach: longest distance at which the nodes must resolve waves.
        Returns: nodes, and weights of sum 1, so that the signal has unit variance.
        """
        sigma = self.sigma * unit
        end = 6.5 / sigma  # exp(-6.5^2) is below double precision
        omega, weights = gauss_legendre(64 + int(end * reach), end)
        density = np.exp(-((sigma * omega) ** 2)) * omega ** (dim - 1)
        if self.kind == "natural":
            density /= omega**2 + (2 * np.pi / (_OUTER_SCALE * unit)) ** 2
        weights = weights * density
        return omega, weights / weights.sum()


@lru_cache(maxsize=32)
def gauss_legendre(count: int, end: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes and weights for integrals from 0 to ``end``."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2 * end, weights / 2 * end
