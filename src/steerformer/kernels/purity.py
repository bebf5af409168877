r"""Purity of voxel kernels: the equivariant fraction of their response, and the kernels that maximize it.

Let $V(\omega) = \sum_z v(z)\, e^{i\omega\cdot z}$ be the response of a voxel kernel to plane waves and $S$ the power
spectrum of the signals. The total energy is $T = \int S |V|^2$; the part that transforms as harmonic $J$ is $G_J$. The
purity $\lambda = G_J / T$ is the equivariant fraction of the response: over uniformly random rotations the relative
error of a single kernel is $\sqrt{2(1-\lambda)}$. Both forms need only one integral over $|\omega|$, because $T(z,z')$
depends on $|z-z'|$, and because the plane-wave expansion reduces $G_J$ to the overlaps
$s_r = \sum_{|z|=r} Y_J(\hat z)^\dagger v(z)$ with each shell of voxels (docs/theory.md, "Kernels that know the grid").
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from steerformer.fields import voxel_coordinates
from steerformer.kernels.rings import Rings, direction_harmonics
from steerformer.kernels.spectrum import Spectrum, gauss_legendre

Array = NDArray[Any]
_GAIN_FREQUENCIES = 17


class GridForms:
    """Quadratic forms T and G of one grid and spectrum, and the kernels built from them, in numpy float64.

    Kernels are arrays ``(voxel, order, kernel)``. Lengths (``steps`` between voxels, ``rings``) are physical; ``unit``
    is the spectrum's unit of length; voxels whose distances agree within 1e-9 of it form one shell.
    """

    def __init__(
        self, size: tuple[int, ...], steps: tuple[float, ...], rings: Rings, spectrum: Spectrum, *, unit: float
    ) -> None:
        self.group, self.size, self.rings, self.noise = rings.group, size, rings, spectrum.noise
        self.points = voxel_coordinates(size, steps).flatten(0, -2)
        lengths = self.points.norm(dim=1).numpy()
        _, first, self.shell = np.unique((lengths / unit).round(9), return_index=True, return_inverse=True)
        self.radii = lengths[first]
        self.ring_end = max(self.rings.radii) + 7 * self.rings.width
        reach = 2 * max(float(self.radii[-1]), self.ring_end)
        self.omega, self.weight = spectrum.quadrature(self.group.dim, unit=unit, reach=reach)
        self.nyquist = np.pi / unit
        self.T = self._autocorrelation(steps, unit)
        self._ring_correlations: dict[int, Array] = {}

    def _autocorrelation(self, steps: tuple[float, ...], unit: float) -> Array:
        table_size = [2 * n - 1 for n in self.size]
        offsets = voxel_coordinates(table_size, steps).norm(dim=-1).numpy()
        _, first, place = np.unique((offsets / unit).round(9), return_index=True, return_inverse=True)
        distances = offsets.flatten()[first]
        table = (self.waves(0, distances) @ self.weight)[place].reshape(table_size)
        index = np.indices(self.size).reshape(len(self.size), -1)
        difference = index[:, :, None] - index[:, None, :] + np.array(self.size)[:, None, None] - 1
        return table[tuple(difference)]

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        from scipy.linalg import cho_factor

        return cho_factor(self.T + self.noise * np.eye(len(self.T)))

    def solve(self, b: Array) -> Array:
        """$T^{-1} b$ along the first axis."""
        from scipy.linalg import cho_solve

        return cho_solve(self._factor, b.reshape(len(b), -1)).reshape(b.shape)

    def waves(self, harmonic: int, radii: Array) -> Array:
        """Radial parts of plane waves, ``(radius, frequency)``."""
        return self.group.bessel(harmonic, np.asarray(radii)[:, None] * self.omega)

    def harmonics(self, harmonic: int) -> Array:
        return direction_harmonics(self.group, harmonic, self.points).numpy()  # voxel, order

    def sampled(self, harmonic: int) -> Array:
        values = self.rings.functions(harmonic, self.points).values  # ring, order, voxel
        return values.permute(2, 1, 0).numpy()

    def fitted(self, harmonic: int) -> Array:
        degree = abs(harmonic)  # in 2D harmonics J and -J share their radial part
        if degree not in self._ring_correlations:
            self._ring_correlations[degree] = self._correlate_rings(degree)
        profiles = self._ring_correlations[degree]
        return self.solve(self.harmonics(harmonic)[:, :, None] * profiles[self.shell, None, :])  # voxel, order, ring

    def _correlate_rings(self, harmonic: int) -> Array:
        """Continuous rings convolved with the signal's autocorrelation, at each shell: ``(shell, ring)``."""
        r, weights = gauss_legendre(96, self.ring_end)
        radii = torch.tensor(self.rings.radii_of(harmonic), dtype=torch.float64)
        rings = self.rings.profile(radii[:, None], torch.from_numpy(r)).numpy()
        transforms = (rings * weights * r ** (self.group.dim - 1)) @ self.waves(harmonic, r)
        return self.waves(harmonic, self.radii) @ (self.weight * transforms).T

    def purest(self, harmonic: int) -> Array:
        Y = self.harmonics(harmonic)
        shells = np.flatnonzero((self.radii > 0) | (harmonic == 0))  # at the origin only degree 0 is nonzero
        candidates = Y[:, :, None] * (self.shell[:, None] == shells)[:, None, :]  # voxel, order, shell
        solved = self.solve(candidates)
        if len(shells) == 0:
            return solved
        Q = np.einsum("zmr,zms->rs", candidates.conj(), solved).real
        B = self.waves(harmonic, self.radii[shells])
        M = (B * self.weight) @ B.T
        L = np.linalg.cholesky(Q)
        purity, modes = np.linalg.eigh(L.T @ M @ L)
        profile = np.linalg.solve(L.T, modes[:, ::-1])  # largest purity first
        transfer = np.sqrt(self.weight)[:, None] * (B.T @ (Q @ profile))
        # eigh leaves the sign undetermined; the peak of the transfer function fixes it independently of rounding
        profile *= np.sign(transfer[np.abs(transfer).argmax(axis=0), np.arange(len(purity))])
        return solved @ profile

    def energies(self, harmonic: int, v: Array) -> tuple[Array, Array]:
        """Equivariant energy and total energy of kernels ``(voxel, order, kernel)``."""
        equivariant = self.weight @ self._wave_energies(harmonic, v, self.omega)
        return equivariant, np.einsum("zmk,zy,ymk->k", v.conj(), self.T, v, optimize=True).real

    def gain(self, harmonic: int, v: Array) -> Array:
        """Equivariant energy of the response to plane waves at a few frequencies, ``(kernel, frequency)``."""
        return self._wave_energies(harmonic, v, np.linspace(0, self.nyquist, _GAIN_FREQUENCIES)).T

    def _wave_energies(self, harmonic: int, v: Array, omega: Array) -> Array:
        overlap = np.einsum("zm,zmk->zk", self.harmonics(harmonic).conj(), v)
        shells = np.zeros((len(self.radii), v.shape[2]), dtype=complex)
        np.add.at(shells, self.shell, overlap)
        return np.abs(self.group.bessel(harmonic, self.radii[:, None] * omega).T @ shells) ** 2
