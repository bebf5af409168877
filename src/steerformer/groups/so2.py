"""SO(2): characters, circular harmonics and trivial couplings."""

import math
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from steerformer.groups.base import Group


class _SO2(Group):
    r"""Irreps $\rho_k(\theta) = e^{ik\theta}$, harmonics $Y_k(\cos\theta, \sin\theta) = e^{ik\theta}$, both complex.

    A kernel from degree $k$ to degree $k'$ has angular part $Y_{k'-k}$, of negative degree where $k' < k$.
    """

    name = "SO2"
    dim = 2

    def irrep_dim(self, degree: int) -> int:
        self.require_degree(abs(degree))
        return 1

    def irrep(self, degree: int, R: Float[Tensor, "*batch 2 2"]) -> Complex[Tensor, "*batch 1 1"]:
        self.require_degree(abs(degree))
        self.require_rotation(R)
        return _character(degree, R[..., 0, 0], R[..., 1, 0])[..., None, None]

    def harmonics(self, degree: int, u: Float[Tensor, "*batch 2"]) -> Complex[Tensor, "*batch 1"]:
        self.require_degree(abs(degree))
        return _character(degree, u[..., 0], u[..., 1])[..., None]

    def harmonic_parts(self, degree: int, u: Float[Tensor, "*batch 2"]) -> tuple[Float[Tensor, "*batch 1"], ...]:
        self.require_degree(degree)
        c, s = u[..., :1], u[..., 1:]
        real, imaginary = torch.ones_like(c), torch.zeros_like(s)
        for _ in range(degree):
            real, imaginary = real * c - imaginary * s, real * s + imaginary * c
        return real, imaginary

    def harmonic_degrees(self, degree_out: int, degree_in: int) -> tuple[int, ...]:
        return (degree_out - degree_in,)

    def coupling(self, degree_out: int, harmonic: int, degree_in: int) -> Float[Tensor, "1 1 1"]:
        if harmonic != degree_out - degree_in:
            raise ValueError(
                f"SO2 couples degree {degree_in} to {degree_out} through harmonic {degree_out - degree_in} only, "
                f"got {harmonic}."
            )
        return torch.ones(1, 1, 1, dtype=torch.float64)

    def bessel(self, degree: int, x: Any) -> Any:
        from scipy.special import jv

        return jv(abs(degree), x)

    def direction_grid(self, degree: int) -> tuple[Float[Tensor, "direction 2"], Float[Tensor, "direction"]]:
        count = 4 * (degree // 4 + 1)  # above the degree, and a multiple of 4 for rotations by 90 degrees
        angles = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
        return torch.stack([angles.cos(), angles.sin()], dim=1), torch.full((count,), 1 / count, dtype=torch.float64)

    def rotation(self, angle: float, axis: tuple[float, ...] | None = None) -> Float[Tensor, "2 2"]:
        """Rotation by ``angle`` in radians that takes the first axis towards the second, float64."""
        if axis is not None:
            raise ValueError(f"a rotation of SO2 has no axis, got axis={axis}; for volumes use SO3.rotation.")
        c, s = math.cos(angle), math.sin(angle)
        return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def _character(degree: int, cosine: Tensor, sine: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(cosine), degree * torch.atan2(sine, cosine))


SO2 = _SO2()
"""Rotations of the plane, for images."""
