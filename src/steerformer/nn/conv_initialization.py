"""Initial weights of convolutions, and the equivariance error to expect of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from steerformer.kernels import KernelBasis


def weight_deviations(basis: KernelBasis, curves: Sequence[Tensor] | None = None) -> Tensor:
    """Standard deviation of each initial weight, ordered as the weights; ``docs/theory.md``, "Initialization".

    Args:
        basis: kernels between the two types.
        curves: for each of ``basis.pairs`` the energy that its paths pass, ``(path, frequency)``; by default the gains
            of the paths.
    """
    variances = path_variances(basis, curves)
    return torch.cat(
        [
            variance.sqrt().expand(shape).flatten()
            for variance, shape in zip(variances, basis.weight_shapes, strict=True)
        ]
    )


def path_variances(basis: KernelBasis, curves: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Variance of the initial weights of each path, for each of ``basis.pairs``."""
    with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
        gains = _gains(basis) if curves is None else curves
        peaks = [gain.amax(dim=1) if len(gain) else gain.new_ones(0) for gain in gains]
        total = dict.fromkeys(basis.out_type.degrees, torch.zeros(()))  # of each output degree, at each frequency
        for (degree, _), shape, gain, peak in zip(basis.pairs, basis.weight_shapes, gains, peaks, strict=True):
            if len(gain):
                total[degree] = total[degree] + shape[1] * (gain / peak[:, None]).sum(dim=0)
        orders = basis.in_type.group.irrep_dim
        return [
            orders(degree) / (peak * total[degree].max() * basis.in_type.parts)
            for (degree, _), peak in zip(basis.pairs, peaks, strict=True)
        ]


def expected_errors(basis: KernelBasis) -> dict[int, float]:
    r"""Relative equivariance error to expect in each output degree with initial weights (``docs/kernels.md``).

    $$\varepsilon_\ell^2 = \frac{\sum_p n_p\, \sigma_p^2\, T_p \cdot 2 (1 - \lambda_p)}{\sum_p n_p\, \sigma_p^2\, T_p}$$

    Sums are over the paths $p$ into degree $\ell$, with the multiplicity $n_p$ of the path's input degree, the variance
    $\sigma_p^2$ of its weights, the energy $T_p$ of its response and its purity $\lambda_p$.
    """
    paths = iter(basis.paths)
    energy, error = (dict.fromkeys(basis.out_type.degrees, 0.0) for _ in range(2))
    for (degree, _), shape, variances in zip(basis.pairs, basis.weight_shapes, path_variances(basis), strict=True):
        for variance in variances.tolist():
            path = next(paths)
            passed = shape[1] * variance * path.energy
            energy[degree] += passed
            error[degree] += passed * 2 * max(1 - path.purity, 0.0)
    return {degree: math.sqrt(error[degree] / energy[degree]) for degree in energy if energy[degree]}


def _gains(basis: KernelBasis) -> list[Tensor]:
    paths = iter(basis.paths)
    return [torch.tensor([next(paths).gain for _ in range(shape[2])]) for shape in basis.weight_shapes]
