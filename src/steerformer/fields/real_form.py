"""Complex matrices as real ones."""

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def real_form(
    matrix: Complex[Tensor, "*batch out in"] | Float[Tensor, "*batch out in"],
) -> Float[Tensor, "*batch 2 out 2 in"]:
    r"""Real form of a complex matrix $A + iB$, acting on both parts: $\begin{pmatrix} A & -B \\ B & A\end{pmatrix}$."""
    re = matrix.real
    im = matrix.imag if matrix.is_complex() else torch.zeros_like(matrix)
    return torch.stack([torch.stack([re, -im], dim=-2), torch.stack([im, re], dim=-2)], dim=-4)
