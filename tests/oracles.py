"""Slow reference implementations, from definitions and independent libraries; none of them calls the code under test.

They read only the plain data of :class:`FieldType` (group, multiplicities, real), never its methods.
"""

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate
from scipy.linalg import expm, null_space
from scipy.spatial.transform import Rotation
from scipy.special import roots_legendre, sph_harm_y
from sympy.physics.wigner import clebsch_gordan

from steerformer import SO2, FieldType
from steerformer.groups import Group


def complex_to_real(degree: int) -> NDArray:
    r"""Unitary matrix from complex to real spherical harmonics, orders $-\ell, ..., \ell$ in both.

    By definition, the real harmonic of order $m$ is $\sqrt2(-1)^m\,\mathrm{Re}\,Y^m$ for $m > 0$, $Y^0$ for $m = 0$ and
    $\sqrt2(-1)^m\,\mathrm{Im}\,Y^{|m|}$ for $m < 0$, and $\overline{Y^m} = (-1)^m Y^{-m}$.
    """
    U = np.zeros((2 * degree + 1, 2 * degree + 1), dtype=complex)
    U[degree, degree] = 1
    for m in range(1, degree + 1):
        sign, plus, minus = (-1) ** m, degree + m, degree - m
        U[plus, [plus, minus]] = sign / math.sqrt(2), 1 / math.sqrt(2)
        U[minus, [plus, minus]] = sign / math.sqrt(2) / 1j, -1 / math.sqrt(2) / 1j
    return U


def textbook_axes(points: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Textbook coordinates (X, Y, Z), the polar axis last: e3nn's coordinates are (Y, Z, X)."""
    return points[..., 2], points[..., 0], points[..., 1]


def harmonics(group: Group, degree: int, u: NDArray) -> NDArray:
    """Unit-norm harmonics: powers of a complex number in 2D, scipy's real harmonics in 3D."""
    if group is SO2:
        return ((u[..., 0] + 1j * u[..., 1]) ** degree)[..., None]
    X, Y, Z = textbook_axes(u)
    polar, azimuth = np.arctan2(np.hypot(X, Y), Z), np.arctan2(Y, X)
    values = [sph_harm_y(degree, m, polar, azimuth) for m in range(-degree, degree + 1)]
    scale = math.sqrt(4 * math.pi / (2 * degree + 1))  # scipy's have mean square 1 / 4 pi
    return scale * (np.stack(values, axis=-1) @ complex_to_real(degree).T).real


def irrep(group: Group, degree: int, R: NDArray) -> NDArray:
    """Irreps by exponentiating the generators, the angular momentum matrices of quantum mechanics."""
    if group is SO2:
        return np.array([[complex(R[0, 0], R[1, 0]) ** degree]])
    X, Y, Z = textbook_axes(Rotation.from_matrix(R).as_rotvec())
    m = np.arange(-degree, degree + 1)
    raising = np.diag(np.sqrt(degree * (degree + 1) - m[:-1] * m[1:]), -1)
    Jx, Jy, Jz = (raising + raising.T) / 2, (raising - raising.T) / 2j, np.diag(m)
    on_kets = expm(-1j * (X * Jx + Y * Jy + Z * Jz))
    U = complex_to_real(degree)  # functions transform by the complex conjugate of the kets' representation
    return (U @ on_kets.conj() @ U.conj().T).real


def coupling(degree_out: int, harmonic: int, degree_in: int) -> NDArray:
    r"""sympy's $\langle J M\, \ell m | \ell' m'\rangle$ in the real basis, scaled to be an isometry of $J$.

    Summed over $m$ and $m'$, the squares of the coefficients give $(2\ell'+1)/(2J+1)$ for every $M$.
    """
    C = np.zeros((2 * degree_out + 1, 2 * harmonic + 1, 2 * degree_in + 1))
    for M, m in itertools.product(range(-harmonic, harmonic + 1), range(-degree_in, degree_in + 1)):
        if abs(M + m) <= degree_out:
            value = clebsch_gordan(harmonic, degree_in, degree_out, M, m, M + m)
            C[degree_out + M + m, harmonic + M, degree_in + m] = float(value)
    bases = complex_to_real(degree_out), complex_to_real(harmonic).conj(), complex_to_real(degree_in).conj()
    return math.sqrt((2 * harmonic + 1) / (2 * degree_out + 1)) * np.einsum("ao,bh,ci,ohi->abc", *bases, C)


def directions(group: Group, count: int) -> tuple[NDArray, NDArray]:
    """Quadrature nodes and weights for the mean over directions, exact for harmonics below degree ``count``."""
    angles = 2 * np.pi * (np.arange(count) + 0.25) / count
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    if group is SO2:
        return circle, np.full(count, 1 / count)
    heights, weights = roots_legendre(count // 2 + 1)
    ring = np.sqrt(1 - heights**2)[:, None, None] * circle
    nodes = np.concatenate([ring, np.broadcast_to(heights[:, None, None], (*ring.shape[:2], 1))], axis=-1)
    return nodes.reshape(-1, 3), np.repeat(weights / 2 / count, count)


def random_rotations(group: Group, count: int) -> NDArray:
    """Uniformly random rotations, drawn with a fixed seed."""
    generator = np.random.default_rng(0)
    if group is SO2:
        c, s = np.cos(angles := generator.uniform(0, 2 * np.pi, count)), np.sin(angles)
        return np.stack([c, -s, s, c], axis=-1).reshape(-1, 2, 2)
    return Rotation.random(count, rng=generator).as_matrix()


def steerable_dimension(group: Group, degree_out: int, degree_in: int, radius: float) -> int:
    r"""Dimension of the space of steerable kernels at one point, by solving the constraint numerically.

    $K(z)$ is constrained by the rotations $h$ that fix $z$ only: $\rho_{out}(h)\,K = K\,\rho_{in}(h)$.
    """
    rows = []
    for angle in (0.7, 1.9):
        for h in _stabilizer(group, radius, angle):
            out, inp = irrep(group, degree_out, h), irrep(group, degree_in, h)
            rows.append(np.kron(out, np.eye(len(inp))) - np.kron(np.eye(len(out)), inp.T))
    return null_space(np.concatenate(rows), rcond=1e-9).shape[1]


def _stabilizer(group: Group, radius: float, angle: float) -> list[NDArray]:
    """Rotations that fix a point at this distance from the origin."""
    if group is SO2:
        c, s = math.cos(angle), math.sin(angle)
        return [np.eye(2) if radius else np.array([[c, -s], [s, c]])]
    axes = np.eye(3)[:1] if radius else np.eye(3)
    return [Rotation.from_rotvec(angle * axis).as_matrix() for axis in axes]


def channel_matrix(field_type: FieldType, R: NDArray) -> NDArray:
    """rho(R) on the channels, in the documented order: part, degree, order, copy, the last fastest."""
    count = field_type.multiplicities
    blocks = [np.kron(irrep(field_type.group, l, R), np.eye(copies)) for l, copies in enumerate(count)]
    half = sum(len(block) for block in blocks)
    rho, start = np.zeros((half, half), dtype=complex), 0
    for block in blocks:
        stop = start + len(block)
        rho[start:stop, start:stop], start = block, stop
    return rho.real if field_type.real else np.block([[rho.real, -rho.imag], [rho.imag, rho.real]])


def rotate(field_type: FieldType, x: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
    r"""$[Rf](x) = \rho(R) f(R^{-1}x)$, voxel by voxel, for rotations of the grid."""
    rho = torch.from_numpy(channel_matrix(field_type, R.numpy()))
    old, inverse = np.array(x.shape[2:]), R.T.numpy()
    new = np.abs(R.numpy()).round().astype(int) @ old
    y = torch.empty(*x.shape[:2], *new.tolist(), dtype=x.dtype)
    for target in itertools.product(*map(range, new)):
        source = inverse @ (np.array(target) - (new - 1) / 2) + (old - 1) / 2
        y[(..., *target)] = x[(..., *source.round().astype(int))] @ rho.T
    return y


def blob(center: NDArray, sigma: float, points: NDArray) -> NDArray:
    """Gaussian blob at many points."""
    return np.exp(-((points - center) ** 2).sum(axis=-1) / (2 * sigma**2))


def spectrum(kind: str, dim: int, sigma: float) -> tuple[NDArray, NDArray]:
    r"""Nodes $|\omega|$ and weights of the power spectrum, $S(|\omega|)\,|\omega|^{d-1}$; weights sum to one."""
    nodes, weights = roots_legendre(48)
    omega = (nodes + 1) * 3.0 / sigma  # up to 6 / sigma, where the Gaussian spectrum is 1e-16
    power = np.exp(-((sigma * omega) ** 2))
    if kind == "natural":  # constant beyond 64 voxels
        power /= omega**2 + (2 * np.pi / (64 * sigma)) ** 2
    weights = weights * power * omega ** (dim - 1)
    return omega, weights / weights.sum()


def spectral_energies(
    group: Group, kernels: dict[int, NDArray], points: NDArray, *, kind: str = "gaussian", sigma: float = 1.0
) -> dict[int, tuple[NDArray, NDArray]]:
    r"""Equivariant and total energy of kernels ``(kernel, order, voxel)``, without Bessel functions.

    $V(\omega) = \sum_z v(z) e^{i\omega\cdot z}$ is summed directly and projected on $Y_J(\hat\omega)$ direction by
    direction; both energies are integrals of $S$ over all frequency vectors. Harmonics $J$ are the keys.
    """
    reach = 6 / sigma * np.linalg.norm(points, axis=-1).max()
    nodes, share = directions(group, 2 * int(reach) + 12)
    Y = {J: share[:, None] * harmonics(group, J, nodes).conj() for J in kernels}
    right, total = ({J: np.zeros(len(v)) for J, v in kernels.items()} for _ in range(2))
    for omega, weight in zip(*spectrum(kind, group.dim, sigma), strict=True):
        waves = np.exp(1j * omega * points @ nodes.T)  # voxel, direction
        for J, v in kernels.items():
            V = (v.reshape(-1, len(points)) @ waves).reshape(*v.shape[:2], -1)  # kernel, order, direction
            total[J] += weight * np.einsum("kmd,kmd,d->k", V, V.conj(), share).real
            right[J] += weight * np.abs(np.tensordot(V, Y[J].T, axes=2)) ** 2
    return {J: (right[J], total[J]) for J in kernels}


def angular_energies(value: NDArray, points: NDArray, count: int = 64) -> tuple[NDArray, NDArray]:
    """Angular frequencies and their energies in the response of one 2D kernel to the Gaussian spectrum."""
    nodes, _ = directions(SO2, count)
    energy = np.zeros(count)
    for omega, weight in zip(*spectrum("gaussian", 2, 1.0), strict=True):
        V = value @ np.exp(1j * omega * points @ nodes.T)
        energy += weight * np.abs(np.fft.fft(V) / count) ** 2
    return np.fft.fftfreq(count, 1 / count), energy


def window(space: tuple[int, ...], width: float) -> dict[tuple[int, ...], float]:
    """Radial window of each voxel: an integral of the density 30 s^2 (1 - s)^2, centered on the outermost voxels."""
    found = {}
    for voxel in itertools.product(*map(range, space)):
        distance = math.dist(voxel, [(n - 1) / 2 for n in space])
        end = min(max(0.5 + ((min(space) - 1) / 2 - distance) / width, 0.0), 1.0)
        found[voxel] = integrate.quad(lambda s: 30 * s**2 * (1 - s) ** 2, 0.0, end)[0]
    return found
