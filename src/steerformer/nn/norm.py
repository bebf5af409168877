"""Equivariant layer and batch normalization."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.batch_statistics import BatchNormalize, composed_statistics, has_fast_kernels, normalized
from steerformer.nn.ops import length, spread


class LayerNorm(nn.Module):
    r"""Equivariant layer normalization: divide by the norm of all degrees at each position (paper, section 3.4).

    $$\mathrm{LN}(f)(x) = \gamma\, f(x) \big/ \sqrt{\textstyle\sum_\rho \|f(x,\rho)\|^2}$$

    with one learned factor $\gamma$ per copy, initially $\sqrt{C}$, so that channels have unit variance. The norm is
    invariant, so $\mathrm{LN}(\rho(R) f) = \rho(R)\, \mathrm{LN}(f)$ for every rotation. Unlike torch's layer
    normalization it subtracts no mean.

    Positions where a feature map is nearly zero, such as the background of an image, get the same norm as all others:
    what they hold, mostly errors of interpolation and of the edge of the grid, is amplified. With a ``floor`` $s$ they
    stay small: the divisor is $\sqrt{\|f(x)\|^2 + C s^2}$.

    Args:
        field_type: type of input and output.
        affine: learn $\gamma$; without it this is the paper's formula.
        eps: smallest norm to divide by.
        floor: $s$, in the units of channels; 0 is the paper's formula.

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.LayerNorm(features)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    def __init__(self, field_type: FieldType, *, affine: bool = True, eps: float = 1e-6, floor: float = 0.0) -> None:
        super().__init__()
        require_field_type(field_type, "LayerNorm")
        _require_eps(eps)
        if not 0 <= as_number(floor) < math.inf:
            raise ValueError(f"the floor of LayerNorm is a finite number >= 0, got {floor!r}.")
        self.in_type = self.out_type = field_type
        self.eps, self.floor = eps, float(floor)
        start = torch.full((field_type.copies,), math.sqrt(field_type.channels))
        self.weight = nn.Parameter(start) if affine else None

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Normalize a field of type ``in_type``."""
        self.in_type.require_channels(x)
        inverse = self._inverse_norm(x)[:, None]
        if self.weight is None:
            return (x * inverse).to(x.dtype)
        factors = spread(self.in_type, self.weight).view(1, -1, *(1 for _ in x.shape[2:]))
        return (x * inverse * factors).to(x.dtype)

    def _inverse_norm(self, x: Tensor) -> Tensor:
        norm = length(x, least=self.eps)
        if not self.floor:
            return norm.reciprocal()
        shift = math.sqrt(self.in_type.channels) * self.floor
        larger = norm.clamp_min(shift)  # squares of the ratios neither overflow nor vanish
        return ((norm / larger).square() + (shift / larger).square()).rsqrt() / larger

    def extra_repr(self) -> str:
        floor = f", floor={self.floor}" if self.floor else ""
        return f"{self.in_type}, affine={self.weight is not None}, eps={self.eps}{floor}"


class BatchNorm(nn.Module):
    r"""Equivariant batch normalization: divide every irrep copy by its root mean square over batch and space.

    $$\mathrm{BN}(f)_c = \gamma_c\, \frac{f_c - \mu_c}{\sqrt{\sigma_c^2 + \epsilon}} + \beta_c, \qquad
      \sigma_c^2 = \mathrm{mean}\, |f_c - \mu_c|^2$$

    with a mean over batch, space and the channels of copy $c$, so that normalized channels have unit variance. Mean
    $\mu_c$ and bias $\beta_c$ are 0 except for scalars: no other degree has an invariant mean. A real factor per copy
    commutes with rotations, so $\mathrm{BN}(Rf) = R\,\mathrm{BN}(f)$. As in torch, eval mode uses running statistics.
    With torch.distributed, statistics are synchronized over all processes.

    Args:
        field_type: type of input and output.
        momentum: weight of the current batch in the running statistics, from 0 to 1.
        eps: $\epsilon$, added to the mean square.
        affine: learn $\gamma$ and $\beta$.

    Shape:
        - Input: $(N, C, *)$ with batch size $N$, $C$ = ``field_type.channels`` and spatial axes $*$, or none.
        - Output: $(N, C, *)$, same shape as the input.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.BatchNorm(features)(features.randn(2, 16)).shape
    torch.Size([2, 24, 16, 16])
    """

    running_mean: Tensor
    running_rms: Tensor

    def __init__(self, field_type: FieldType, *, momentum: float = 0.1, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        require_field_type(field_type, "BatchNorm")
        _require_eps(eps)
        if not 0 <= as_number(momentum) <= 1:
            raise ValueError(f"the momentum of BatchNorm is a number from 0 to 1, got {momentum!r}.")
        self.in_type = self.out_type = field_type
        self.momentum, self.eps = momentum, eps
        scalars = field_type.multiplicity(0)
        self.weight = nn.Parameter(torch.ones(field_type.copies)) if affine else None
        self.bias = nn.Parameter(torch.zeros(field_type.parts, scalars)) if affine and scalars else None
        self.register_buffer("running_mean", torch.zeros(field_type.parts, scalars))
        self.register_buffer("running_rms", torch.ones(field_type.copies))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Normalize a field of type ``in_type``; in training mode also update the running statistics."""
        self.in_type.require_channels(x)
        if not self.training or not x.numel():
            return normalized(x, self.running_mean, self.running_rms, self.weight, self.bias, self.in_type, self.eps)
        if has_fast_kernels(x, self.running_rms):
            y, mean, rms = BatchNormalize.apply(x, self.weight, self.bias, self.in_type, self.eps)
        else:
            mean, rms = composed_statistics(x, self.in_type)
            y = normalized(x, mean, rms, self.weight, self.bias, self.in_type, self.eps)
        with torch.no_grad():
            for running, current in ((self.running_mean, mean), (self.running_rms, rms)):
                running.lerp_(current.detach().to(running), self.momentum)  # without forward-mode derivatives, too
        out: Tensor = y
        return out

    def extra_repr(self) -> str:
        return f"{self.in_type}, momentum={self.momentum}, eps={self.eps}, affine={self.weight is not None}"


def _require_eps(eps: float) -> None:
    if not 0 < as_number(eps) < math.inf:
        raise ValueError(f"eps is a finite number above 0, to avoid division by zero, got {eps!r}.")
