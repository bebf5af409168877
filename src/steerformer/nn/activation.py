"""Equivariant nonlinearities that act on norms or by gates."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.kernels import Family
from steerformer.nn.conv import Conv
from steerformer.nn.exported import is_exported
from steerformer.nn.ops import (
    SCALE,
    SHORTEST,
    in_forward_mode,
    in_single_precision,
    inverse_scaled_length,
    is_traced,
    length,
    scale_copies,
    split_runs,
)


class NormReLU(nn.Module):
    r"""Norm nonlinearity: ReLU on the norm of every irrep copy (paper, section 3.3).

    $$\sigma(f) = \frac{\mathrm{ReLU}(\|f\| + b)}{\|f\|}\, f$$

    with one learned bias $b$ per copy. Rotations keep norms, so $\sigma(\rho(R) f) = \rho(R)\, \sigma(f)$ exactly, for
    every rotation. With $b = 0$ the layer is the identity; with $b < 0$ it sets short vectors to zero. Norms below 1e-6
    count as 1e-6, which keeps values and gradients finite at zero.

    Args:
        field_type: type of input and output.
        bias: initial value of $b$.

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.NormReLU(features, bias=-0.1)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(self, field_type: FieldType, *, bias: float = 0.0) -> None:
        super().__init__()
        require_field_type(field_type, "NormReLU")
        if not isfinite(as_number(bias)):
            raise ValueError(f"the initial bias of NormReLU is a finite number, got {bias!r}.")
        self.in_type = self.out_type = field_type
        self.bias = nn.Parameter(torch.full((field_type.copies,), float(bias)))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Apply the nonlinearity to a field of type ``in_type``."""
        self.in_type.require_channels(x)
        bias = in_single_precision(self.bias)
        if in_forward_mode() or is_exported():
            return _shrink(x, bias, self.in_type)
        out: Tensor = _Shrink.apply(x, bias, self.in_type)
        return out

    def extra_repr(self) -> str:
        return str(self.in_type)


class Gated(nn.Module):
    r"""Gated nonlinearity: sigmoid gates from a steerable convolution scale every irrep copy.

    $$\sigma(f)_c(x) = \mathrm{sigmoid}(s_c(x) + b_c)\, f_c(x), \qquad s = K * f$$

    (Weiler et al. 2018; paper, section 2.4), with one gate $s_c$, a real scalar field, and one learned bias $b_c$ per
    copy $c$. Scalars are invariant, so the product transforms as $f$ does; at angles other than those of the grid it is
    as exact as the convolution. The gates cost one convolution to ``field_type.copies`` real channels.

    Args:
        field_type: type of input and output.
        kernel_size: size of the kernel in voxels, for all axes or for each; with 1 only scalars control the gates.
        kernel_family: family of the convolution's kernels; see :class:`Conv`.
        max_impurity: largest impurity of these kernels; see :class:`Conv`.
        spacing: voxel spacing; see :class:`Conv`.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Output: $(N, C, *space)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.Gated(features, kernel_size=3)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        kernel_size: int | Sequence[int] = 3,
        kernel_family: Family = "fitted",
        max_impurity: float = 1e-2,
        spacing: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        require_field_type(field_type, "Gated")
        self.in_type = self.out_type = field_type
        scalars = FieldType.image(field_type.group, field_type.copies)
        self.gates = Conv(
            field_type,
            scalars,
            kernel_size=kernel_size,
            kernel_family=kernel_family,
            max_impurity=max_impurity,
            spacing=spacing,
        )
        self.bias = nn.Parameter(torch.zeros(field_type.copies))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Apply the nonlinearity to a field of type ``in_type``."""
        gates = self.gates(x)
        return scale_copies(self.in_type, x, torch.sigmoid(gates + _per_copy(self.bias, gates)))

    def extra_repr(self) -> str:
        return str(self.in_type)


class _Shrink(torch.autograd.Function):
    """``x ReLU(1 + b / |x|)`` for every copy, written in place; backward recomputes the norms.

    Composed of torch operations it takes twice the time, mostly for copies and allocations.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bias: Tensor, field_type: FieldType) -> Tensor:
        if is_traced(x, bias):
            return _shrink(x, bias, field_type)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        of_pieces = (split_runs(field_type, x), split_runs(field_type, out), _shares(field_type, bias, x))
        for piece, result, share in zip(*of_pieces, strict=True):
            inverse = inverse_scaled_length(piece, least=SHORTEST)
            torch.mul(piece, inverse.mul_(share * SCALE).add_(1).relu_()[:, None, None], out=result)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, FieldType], output: Tensor) -> None:
        x, bias, ctx.field_type = inputs
        ctx.save_for_backward(x, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, bias = ctx.saved_tensors
        pieces, grads = split_runs(ctx.field_type, x), split_runs(ctx.field_type, grad)
        into_x, into_bias = [], []
        for piece, grad_piece, share in zip(pieces, grads, _shares(ctx.field_type, bias, x), strict=True):
            gates, inverse = _gates(piece, share)
            # the gate's derivative is 1 / |x| by the bias and -b x / |x|^3 by x; both are 0 where the gate is closed
            slope = (grad_piece * piece).sum(dim=(1, 2)) * inverse * (gates[:, 0, 0] > 0)
            along = -slope * share * inverse**2 * (inverse < 1 / SHORTEST)
            into_x.append(grad_piece * gates + piece * along[:, None, None])
            into_bias.append(slope.sum(dim=[0, *range(2, slope.ndim)]))
        return ctx.field_type.pack(into_x), torch.cat(into_bias), None


def _shrink(x: Tensor, bias: Tensor, field_type: FieldType) -> Tensor:
    """``x ReLU(1 + b / |x|)`` for every copy as an expression."""
    pieces = zip(split_runs(field_type, x), _shares(field_type, bias, x), strict=True)
    return field_type.pack(piece * _gates(piece, share)[0] for piece, share in pieces).to(x.dtype)


def _gates(piece: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """``ReLU(1 + b / |x|)``, broadcastable to the piece, and ``1 / |x|``."""
    if torch.is_grad_enabled() or in_forward_mode():  # derivatives of a scaled length leave the range of float32
        inverse = length(piece.flatten(1, 2)).clamp_min(SHORTEST).reciprocal()
    else:
        inverse = inverse_scaled_length(piece, least=SHORTEST) * SCALE
    return torch.relu(1 + share * inverse)[:, None, None], inverse


def _shares(field_type: FieldType, bias: Tensor, x: Tensor) -> list[Tensor]:
    """Biases of each run of degrees, broadcastable to the norms of its copies."""
    space = (1,) * (x.ndim - 2)
    return [share.view(-1, *space) for share in bias.split([copies for _, copies in field_type.runs])]


def _per_copy(values: Tensor, like: Float[Tensor, "batch copies *space"]) -> Tensor:
    return values.view(1, -1, *(1 for _ in like.shape[2:]))
