"""Normalization by lengths, which no rotation changes."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.ops import SCALE, in_wide_range, length, rms_of_copies, spread
from steerformer.nn.processes import is_shared, shared_mean, shared_rms


class LayerNorm(nn.Module):
    r"""Divide by the length of all degrees together, at each position (paper, section "layer normalization").

    $$\mathrm{LN}(f)(x) = f(x) \big/ \sqrt{\textstyle\sum_\rho \|f(x,\rho)\|^2}$$

    The learned factor per copy starts at $\sqrt{channels}$, so that channels have unit variance; without it
    (``affine=False``) this is the paper's formula to the letter. ``eps`` is the shortest length that is divided by.
    """

    def __init__(self, field_type: FieldType, *, affine: bool = True, eps: float = 1e-6) -> None:
        super().__init__()
        require_field_type(field_type, "LayerNorm")
        _require_eps(eps)
        self.in_type = self.out_type = field_type
        self.eps = eps
        start = torch.full((field_type.copies,), math.sqrt(field_type.channels))
        self.weight = nn.Parameter(start) if affine else None

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        self.in_type.require_channels(x)
        inverse = length(x, least=self.eps).reciprocal()[:, None]
        if self.weight is None:
            return x * inverse
        factors = spread(self.in_type, self.weight).view(1, -1, *(1 for _ in x.shape[2:]))
        return x * inverse * factors

    def extra_repr(self) -> str:
        return f"{self.in_type}, affine={self.weight is not None}, eps={self.eps}"


class BatchNorm(nn.Module):
    r"""Divide every copy by its root-mean-square over batch and space; running statistics serve in eval mode.

    Scalars also lose their mean and gain a learned one: they alone can have a mean that no rotation changes. The
    root-mean-square is per channel, so that normalized channels have unit variance; a learned factor per copy follows.
    Processes that train together (torch.distributed) take the statistics of their samples together.

    Args:
        field_type: type of input and output.
        momentum: weight of the newest batch in the running statistics, from 0 to 1.
        eps: added to the mean square.
        affine: learn a factor per copy and a mean per scalar.
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
        self._scalars = field_type.multiplicity(0)
        self.weight = nn.Parameter(torch.ones(field_type.copies)) if affine else None
        self.bias = nn.Parameter(torch.zeros(field_type.parts, self._scalars)) if affine and self._scalars else None
        self.register_buffer("running_mean", torch.zeros(field_type.parts, self._scalars))
        self.register_buffer("running_rms", torch.ones(field_type.copies))

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        self.in_type.require_channels(x)
        mean, rms = self._statistics(x) if self.training and x.numel() else (self.running_mean, self.running_rms)
        scale = torch.hypot(rms, rms.new_tensor(self.eps**0.5)).reciprocal()
        if self.weight is not None:
            scale = scale * self.weight
        factors = spread(self.in_type, scale)
        shift = -self._widen(mean) * factors
        if self.bias is not None:
            shift = shift + self._widen(self.bias)
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        return torch.addcmul(shift.view(shape), x, factors.view(shape))

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the scalars and root-mean-square of all copies, which the running statistics take note of."""
        x, axes = in_wide_range(x), [0, *range(2, x.ndim)]
        scalars = x.unflatten(1, (self.in_type.parts, -1))[:, :, : self._scalars]
        mean = scalars.mean(dim=[0, *range(3, scalars.ndim)])
        count, shared = x.numel() // x.shape[1], is_shared()
        mean = shared_mean(mean, count) if shared else mean
        norms = torch.linalg.vector_norm(x * SCALE, dim=axes).unflatten(0, (self.in_type.parts, -1))
        about_mean = scalars - mean.view(1, *mean.shape, *(1 for _ in x.shape[2:]))
        scalar_norms = torch.linalg.vector_norm(about_mean * SCALE, dim=[0, *range(3, scalars.ndim)])
        channels = torch.cat([scalar_norms, norms[:, self._scalars :]], dim=1).flatten() / count**0.5
        rms = rms_of_copies(self.in_type, shared_rms(channels, count) if shared else channels) / SCALE
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_rms.lerp_(rms.to(self.running_rms), self.momentum)
        return mean, rms

    def _widen(self, scalars: Tensor) -> Tensor:
        """Values of the scalars among zeros for all other channels."""
        others = self.in_type.channels // self.in_type.parts - self._scalars
        return F.pad(scalars, (0, others)).flatten()

    def extra_repr(self) -> str:
        return f"{self.in_type}, momentum={self.momentum}, eps={self.eps}, affine={self.weight is not None}"


def _require_eps(eps: float) -> None:
    if not 0 < as_number(eps) < math.inf:
        raise ValueError(f"eps keeps norms from dividing by zero: a number above 0, got {eps!r}.")
