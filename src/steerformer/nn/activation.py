"""Nonlinearities that act on lengths, or by gates: they commute with every rotation exactly."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.nn.conv import Conv
from steerformer.nn.ops import copy_norms, scale_copies

_SHORTEST = 1e-6  # keeps f / |f| and its gradient finite


class NormReLU(nn.Module):
    r"""$\sigma(f) = \mathrm{ReLU}(\|f\| + b)\, f / \|f\|$ for every irrep copy, $b$ learned (paper, section "MLP").

    With $b = 0$ this is the identity, with $b < 0$ it silences short vectors. Vectors shorter than 1e-6 are treated as
    if they had that length, so that values and gradients stay finite at zero.

    Args:
        field_type: type of input and output.
        bias: initial value of $b$.
    """

    def __init__(self, field_type: FieldType, *, bias: float = 0.0) -> None:
        super().__init__()
        self.in_type = self.out_type = field_type
        self.bias = nn.Parameter(torch.full((field_type.copies,), float(bias)))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        self.in_type.require_channels(x)
        norms = copy_norms(self.in_type, x, least=_SHORTEST)
        # ReLU(n + b) / n = ReLU(1 + b / n)
        gates = (_per_copy(self.bias, norms) / norms).add_(1).relu_()
        return scale_copies(self.in_type, x, gates)


class Gated(nn.Module):
    r"""$\sigma(f) = \mathrm{sigmoid}(s)\, f$ for every irrep copy, with scalars $s$ from a steerable convolution.

    (Weiler et al. 2018, the filter that serves as a nonlinearity in the paper's list.)

    Args:
        field_type: type of input and output.
        kernel_size: of the convolution that makes the gates; with 1 only scalars open and close them.
        spacing: physical size of a voxel, passed to the convolution.
    """

    def __init__(
        self, field_type: FieldType, *, kernel_size: int = 3, spacing: tuple[float, ...] | None = None
    ) -> None:
        super().__init__()
        self.in_type = self.out_type = field_type
        scalars = FieldType.image(field_type.group, field_type.copies)
        self.gates = Conv(field_type, scalars, kernel_size=kernel_size, spacing=spacing)
        self.bias = nn.Parameter(torch.zeros(field_type.copies))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        gates = self.gates(x)
        return scale_copies(self.in_type, x, torch.sigmoid(gates + _per_copy(self.bias, gates)))


def _per_copy(values: Tensor, like: Float[Tensor, "batch copies *space"]) -> Tensor:
    return values.view(1, -1, *(1 for _ in like.shape[2:]))
