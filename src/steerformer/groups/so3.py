"""SO(3): Wigner D-matrices, spherical harmonics and Clebsch-Gordan coefficients, all real."""

import math
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.groups.base import Group


class _SO3(Group):
    r"""Irreps $D^\ell(R)$ in the real basis of e3nn; $D^1(R) = R$ and $Y_1(u) = u$.

    Only the couplings come from e3nn. Harmonics and Wigner matrices follow by coupling each degree with $Y_1(u) = u$
    and $D^1(R) = R$. This has no largest degree (e3nn's harmonics end at 11) and avoids Euler angles, which lose half
    of the digits near the poles.
    """

    name = "SO3"
    dim = 3
    parities = "eo"
    has_real_irreps = True

    def irrep_dim(self, degree: int) -> int:
        self.require_degree(degree)
        return 2 * degree + 1

    def irrep(self, degree: int, R: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch order order"]:
        self.require_degree(degree)
        self.require_rotation(R)
        D = torch.ones_like(R[..., :1, :1])
        for step in range(1, degree + 1):
            raising = _raising(step).to(R)  # an isometry: irrep `step` inside (step - 1) x 1
            D = torch.einsum("iaj,...ik,...ab,kbl->...jl", raising, D, R, raising)
        return D

    def harmonics(self, degree: int, u: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch order"]:
        self.require_degree(degree)
        Y = torch.ones_like(u[..., :1])
        for step in range(1, degree + 1):
            # the stretched product keeps the fraction step / (2 step - 1) of the squared norm, for every u
            scale = math.sqrt((2 * step - 1) / step)
            Y = scale * torch.einsum("iaj,...i,...a->...j", _raising(step).to(u), Y, u)
        return Y

    def harmonic_degrees(self, degree_out: int, degree_in: int) -> tuple[int, ...]:
        return tuple(range(abs(degree_out - degree_in), degree_out + degree_in + 1))

    def coupling(self, degree_out: int, harmonic: int, degree_in: int) -> Float[Tensor, "out harmonic in"]:
        if harmonic not in self.harmonic_degrees(degree_out, degree_in):
            raise ValueError(
                f"SO3 couples degree {degree_in} to {degree_out} through harmonics "
                f"{abs(degree_out - degree_in)} to {degree_out + degree_in}, got {harmonic}."
            )
        return _wigner_3j(degree_out, harmonic, degree_in) * math.sqrt(2 * harmonic + 1)

    def bessel(self, degree: int, x: Any) -> Any:
        from scipy.special import spherical_jn

        return spherical_jn(degree, x)

    def direction_grid(self, degree: int) -> tuple[Float[Tensor, "direction 3"], Float[Tensor, "direction"]]:
        from scipy.integrate import lebedev_rule

        known = [*range(3, 32, 2), *range(35, 132, 6)]
        if degree > known[-1]:
            raise ValueError(f"direction grids resolve degrees up to {known[-1]}, got {degree}.")
        points, weights = lebedev_rule(next(n for n in known if n >= degree))
        return torch.from_numpy(points.T.copy()), torch.from_numpy(weights / (4 * math.pi))

    def rotation(self, angle: float, axis: tuple[float, ...] | None = None) -> Float[Tensor, "3 3"]:
        """Right-handed rotation by ``angle`` in radians about ``axis`` (of any nonzero length), float64."""
        length = 0.0 if axis is None or len(axis) != 3 else math.hypot(*axis)
        if axis is None or not 0 < length < math.inf:
            raise ValueError(f"SO3.rotation needs an axis of three finite numbers, not all zero, got {axis}.")
        x, y, z = (coordinate / length for coordinate in axis)
        cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
        return torch.eye(3, dtype=torch.float64) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


@cache
def _wigner_3j(l1: int, l2: int, l3: int) -> Tensor:
    from e3nn import o3  # imported late: it takes two seconds, and images do not need it

    return o3.wigner_3j(l1, l2, l3, dtype=torch.float64, device=torch.device("cpu"))


@cache
def _raising(degree: int) -> Tensor:
    """Isometry from degree ``degree`` into the product of degree ``degree - 1`` and degree 1."""
    return _wigner_3j(degree - 1, 1, degree) * math.sqrt(2 * degree + 1)


SO3 = _SO3()
"""Rotations of space, for volumes."""
