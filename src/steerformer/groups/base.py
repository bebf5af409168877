"""Interface of a rotation group; all that differs between images and volumes is behind it."""

from abc import ABC, abstractmethod
from itertools import permutations, product
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Matrices = Float[Tensor, "*batch order order"] | Complex[Tensor, "*batch order order"]
Vectors = Float[Tensor, "*batch order"] | Complex[Tensor, "*batch order"]


class Group(ABC):
    r"""A rotation group $SO(d)$ with its irreps, harmonics and couplings.

    Rotations are real ``(d, d)`` matrices that act on coordinates in tensor-axis order: the first coordinate runs
    along the first spatial axis of a field. A *degree* names an irrep; features carry degrees $\ge 0$. A *harmonic
    degree* names the angular part of a kernel; for :data:`SO2` it may be negative.
    """

    name: str
    dim: int
    parities: str = ""
    """Letters that e3nn writes after degrees, for the parity under inversion, which is not a rotation."""
    has_real_irreps: bool = False
    """Whether irrep matrices, harmonics and couplings of all degrees are real."""

    @abstractmethod
    def irrep_dim(self, degree: int) -> int:
        """Dimension of the irrep, equal to the number of harmonics of that degree."""

    @abstractmethod
    def irrep(self, degree: int, R: Float[Tensor, "*batch dim dim"]) -> Matrices:
        r"""Irrep matrices $\rho(R)$: unitary, with $\rho(R_1 R_2) = \rho(R_1)\rho(R_2)$."""

    @abstractmethod
    def harmonics(self, degree: int, u: Float[Tensor, "*batch dim"]) -> Vectors:
        r"""Harmonics of unit vectors, $Y(Ru) = \rho(R)\,Y(u)$ and $\|Y(u)\| = 1$.

        Args:
            degree: harmonic degree.
            u: unit vectors, coordinates in tensor-axis order; for other vectors the result is undefined.
        Returns: orders along the last axis, length ``irrep_dim(degree)``.
        """

    def harmonic_parts(self, degree: int, u: Float[Tensor, "*batch dim"]) -> tuple[Float[Tensor, "*batch order"], ...]:
        """:meth:`harmonics` of a degree >= 0 without complex numbers: itself if real, or real and imaginary part."""
        found = self.harmonics(degree, u)
        return (found.real, found.imag) if found.is_complex() else (found,)

    @abstractmethod
    def harmonic_degrees(self, degree_out: int, degree_in: int) -> tuple[int, ...]:
        """All harmonic degrees of kernels from ``degree_in`` to ``degree_out``, each once."""

    @abstractmethod
    def coupling(
        self, degree_out: int, harmonic: int, degree_in: int
    ) -> Float[Tensor, "out harmonic in"] | Complex[Tensor, "out harmonic in"]:
        r"""Clebsch-Gordan tensor $C$ for which $\sum_m C_{omi} Y_m(u)$ is a steerable matrix.

        $$\rho_{out}(R)\, C(y)\, \rho_{in}(R)^{-1} = C(\rho_J(R)\, y), \qquad \|C(y)\|_F = \|y\|$$
        """

    @abstractmethod
    def bessel(self, degree: int, x: Any) -> Any:
        r"""Radial part of a plane wave: the mean of $Y(\hat\omega) e^{i\omega\cdot z}$ over all directions
        $\hat\omega$ is $i^{|J|}\, b_J(|\omega||z|)\, Y(\hat z)$. Takes and returns numpy arrays."""

    @abstractmethod
    def direction_grid(self, degree: int) -> tuple[Float[Tensor, "direction dim"], Float[Tensor, "direction"]]:
        """Quadrature nodes (unit vectors) and weights (sum 1), exact for functions of direction up to ``degree``.

        The rotations of the voxel grid map the nodes to themselves.
        """

    @abstractmethod
    def rotation(self, angle: float, axis: tuple[float, ...] | None = None) -> Float[Tensor, "dim dim"]:
        """Rotation by ``angle`` in radians (in three dimensions: about ``axis``), float64."""

    def random_rotation(self, generator: torch.Generator | None = None) -> Float[Tensor, "dim dim"]:
        """A rotation drawn from the uniform (Haar) measure, float64."""
        gaussian = torch.randn(self.dim, self.dim, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(gaussian)
        q = q * r.diagonal().sign()  # without the signs of r, QR is not uniform
        q[:, 0] *= torch.linalg.det(q).sign()
        return q

    def grid_rotations(self) -> tuple[Float[Tensor, "dim dim"], ...]:
        """Rotations that map a square or cubic grid to itself, identity first: 4 in 2D, 24 in 3D."""
        found = []
        for axes in permutations(range(self.dim)):
            for signs in product((1.0, -1.0), repeat=self.dim):
                R = torch.zeros(self.dim, self.dim, dtype=torch.float64)
                R[range(self.dim), axes] = torch.tensor(signs, dtype=torch.float64)
                if torch.linalg.det(R) > 0:
                    found.append(R)
        return tuple(found)

    def is_grid_rotation(self, R: Float[Tensor, "dim dim"]) -> bool:
        """Whether ``R`` maps the voxel grid to itself, within 1e-6."""
        return bool((R - R.round()).abs().max() < 1e-6)

    def require_degree(self, degree: object) -> None:
        """Raise ``ValueError`` unless ``degree`` is the degree of a feature's irrep."""
        if isinstance(degree, bool) or not isinstance(degree, Integral) or degree < 0:
            raise ValueError(
                f"a degree of {self.name} is an integer >= 0, got {degree!r}; negative degrees exist for 2D kernels "
                f"only, because the complex conjugate of a feature of degree k has degree -k."
            )

    def require_rotation(self, R: Tensor) -> None:
        """Raise ``ValueError`` unless ``R`` is one or a batch of rotation matrices of this group."""
        if not isinstance(R, Tensor) or not R.is_floating_point():
            raise TypeError(
                f"a rotation is a real floating-point tensor, got {_kind(R)}; see {self.name}.rotation(...)."
            )
        if R.shape[-2:] != (self.dim, self.dim):
            raise ValueError(
                f"a rotation of {self.name} is a {self.dim} x {self.dim} matrix, got shape {tuple(R.shape)}; "
                f"{self.name}.rotation(...) builds one from an angle."
            )
        defect = (R @ R.mT - torch.eye(self.dim, dtype=R.dtype, device=R.device)).abs().max().item()
        if not defect <= min(100 * torch.finfo(R.dtype).eps ** 0.75, 1e-2):  # also catches NaN
            raise ValueError(
                f"a rotation is orthogonal, but this matrix has max|R R^T - 1| = {defect:.1e}, perhaps from scaling, "
                f"shear or rounding; orthogonalize it, or build it in float64."
            )
        if (torch.linalg.det(R.double()) < 0).any():
            raise ValueError(
                f"{self.name} contains rotations (determinant +1), got a reflection (determinant -1); "
                f"perhaps one axis is flipped."
            )

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # pickles and copies as the module-level singleton, so that `is` keeps working


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
