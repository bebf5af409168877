"""Nonlinearities that act on lengths, or by gates: they commute with every rotation exactly."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.nn.conv import Conv
from steerformer.nn.ops import SCALE, in_wide_range, inverse_scaled_length, multiply_into, scale_copies, split_runs

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
        out: Tensor = _Shrink.apply(x, in_wide_range(self.bias), self.in_type)
        return out


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


class _Shrink(torch.autograd.Function):
    """``x ReLU(1 + b / |x|)``, copy by copy, written where it belongs; backward takes the lengths again.

    Put together from torch's own operations this takes twice the time, most of it for copies and fresh memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, field_type: FieldType) -> Tensor:
        ctx.save_for_backward(x, bias)
        ctx.field_type = field_type
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for piece, result, share in _by_run(field_type, bias, x, out):
            inverse = inverse_scaled_length(piece.flatten(1, 2), least=_SHORTEST)
            multiply_into(result, piece, inverse.mul_(share * SCALE).add_(1).relu_()[:, None, None])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, bias = ctx.saved_tensors
        into_x, into_bias = [], []
        for piece, grad_piece, share in _by_run(ctx.field_type, bias, x, grad):
            inverse = inverse_scaled_length(piece.flatten(1, 2), least=_SHORTEST) * SCALE
            gates = torch.relu(1 + share * inverse)
            # the gate's derivative by the bias is 1 / |x|, by x it is -b x / |x|^3; none where it is shut
            slope = (grad_piece * piece).sum(dim=(1, 2)) * inverse * (gates > 0)
            along = -slope * share * inverse**2 * (inverse < 1 / _SHORTEST)
            into_x.append(grad_piece * gates[:, None, None] + piece * along[:, None, None])
            into_bias.append(slope.sum(dim=[0, *range(2, slope.ndim)]))
        return ctx.field_type.pack(into_x), torch.cat(into_bias), None


def _by_run(field_type: FieldType, bias: Tensor, *fields: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pieces of the two fields with the biases of their copies, one run of degrees at a time."""
    shares = bias.split([copies for _, copies in field_type.runs])
    for first, second, share in zip(*(split_runs(field_type, field) for field in fields), shares, strict=True):
        yield first, second, share.view(-1, *(1 for _ in first.shape[4:]))


def _per_copy(values: Tensor, like: Float[Tensor, "batch copies *space"]) -> Tensor:
    return values.view(1, -1, *(1 for _ in like.shape[2:]))
