"""Batch normalization of irrep copies: statistics, normalization, and its gradient with few passes over the field."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from steerformer.fields import FieldType
from steerformer.nn.exported import is_exported
from steerformer.nn.ops import SCALE, in_single_precision, is_traced, rms_of_copies, split_runs, spread
from steerformer.nn.second_derivatives import differentiable_gradients
from steerformer.nn.shared_statistics import is_shared, shared_mean, shared_rms


def has_fast_kernels(x: Tensor, statistics: Tensor) -> bool:
    """Whether torch's kernels for batch normalization on CPUs take this field."""
    return x.device.type == "cpu" and x.element_size() >= 4 and x.dtype == statistics.dtype and not is_traced(x)


def normalized(
    x: Float[Tensor, "batch channels *space"],
    mean: Float[Tensor, "part scalars"],
    rms: Float[Tensor, "copies"],
    weight: Float[Tensor, "copies"] | None,
    bias: Float[Tensor, "part scalars"] | None,
    field_type: FieldType,
    eps: float,
) -> Float[Tensor, "batch channels *space"]:
    """Subtract the mean of scalars, divide each copy by its root mean square, then apply weight and bias."""
    mean, rms = in_single_precision(mean), in_single_precision(rms)
    scale = _deviation(rms, eps).reciprocal()
    factors = spread(field_type, scale if weight is None else scale * weight)
    shift = -_widen(mean, field_type) * factors
    if bias is not None:
        shift = shift + _widen(bias, field_type)
    if has_fast_kernels(x, factors):
        return _map_channels(x, factors, shift)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    return torch.addcmul(shift.view(shape), x, factors.view(shape)).to(x.dtype)


def composed_statistics(
    x: Float[Tensor, "batch channels *space"], field_type: FieldType
) -> tuple[Float[Tensor, "part scalars"], Float[Tensor, "copies"]]:
    """Mean of the scalars and root mean square of all copies about it, over all processes."""
    x, count = in_single_precision(x), x.numel() // x.shape[1]
    scalars, others = _scalars_and_others(x, field_type)
    axes = [0, *range(3, scalars.ndim)]
    mean = scalars.mean(dim=axes)
    mean = shared_mean(mean, count) if is_shared() else mean
    about_mean = scalars - mean.view(1, *mean.shape, *(1 for _ in x.shape[2:]))
    norms = [torch.linalg.vector_norm(piece * SCALE, dim=axes) for piece in (about_mean, others)]
    channels = torch.cat(norms, dim=1).flatten() / count**0.5
    return mean, rms_of_copies(field_type, shared_rms(channels, count) if is_shared() else channels) / SCALE


class BatchNormalize(torch.autograd.Function):
    """Output, mean and root mean square of a batch, for tensors that :func:`has_fast_kernels` accepts.

    Composed of torch's operations it takes several times as long, for copies and for slow reductions.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, field_type: FieldType, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, rms = _fast_statistics(x.contiguous(), field_type)
        ctx.save_for_backward(x, weight, bias, mean, rms)
        ctx.field_type, ctx.eps = field_type, eps
        ctx.mark_non_differentiable(mean, rms)
        return normalized(x.contiguous(), mean, rms, weight, bias, field_type, eps), mean, rms

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: the result must be differentiable, too
            return *_composed_backward(ctx, grad), None, None
        x, weight, bias, mean, rms = ctx.saved_tensors
        x, grad, field_type = x.contiguous(), grad.contiguous(), ctx.field_type
        center, deviation = _widen(mean, field_type), _deviation(rms, ctx.eps)
        products, sums = _sums_per_channel(x, grad, center)
        into_weight = None if weight is None else _sums_per_copy(products, field_type) / deviation
        into_bias = None if bias is None else sums.unflatten(0, (field_type.parts, -1))[:, : bias.shape[1]]
        if not ctx.needs_input_grad[0]:
            return None, into_weight, into_bias, None, None
        count = x.numel() // x.shape[1]
        means = torch.stack([products, sums]) / count
        products, sums = shared_mean(means, count) if is_shared() else means
        # the gradient by x is (grad - mean(grad) - (x - center) slope) weight / deviation
        per_copy = _sums_per_copy(products, field_type) / _sums_per_copy(torch.ones_like(products), field_type)
        slope = spread(field_type, per_copy / deviation / deviation)
        mean_grad = _widen(_scalars_and_others(sums[None], field_type)[0][0], field_type)
        scale = deviation.reciprocal() if weight is None else weight / deviation
        into_x = _map_channels(x, -slope, center * slope - mean_grad).add_(grad)
        return (
            into_x.mul_(spread(field_type, scale).view(-1, *(1 for _ in x.shape[2:]))),
            into_weight,
            into_bias,
            None,
            None,
        )


def _composed_backward(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    def again(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return normalized(x, *composed_statistics(x, ctx.field_type), weight, bias, ctx.field_type, ctx.eps)

    return differentiable_gradients(again, ctx.saved_tensors[:3], grad)


def _fast_statistics(x: Tensor, field_type: FieldType) -> tuple[Tensor, Tensor]:
    """:func:`composed_statistics`, reduced over space first, which is several times faster than at once."""
    count = x.numel() // x.shape[1]
    scalars, others = _scalars_and_others(x.flatten(2) if x.ndim > 2 else x[..., None], field_type)
    mean = scalars.mean(dim=(0, 3))
    mean = shared_mean(mean, count) if is_shared() else mean
    norms = torch.cat([_norms(scalars - mean[..., None]), _norms(others)], dim=2)  # batch, part, channel
    channels = torch.linalg.vector_norm(norms * SCALE, dim=0).flatten() / count**0.5
    return mean, rms_of_copies(field_type, shared_rms(channels, count) if is_shared() else channels) / SCALE


def _norms(x: Tensor) -> Tensor:
    """Norms along the last axis; scaled only where squares leave the range of the dtype, because that takes a copy."""
    norms = torch.linalg.vector_norm(x, dim=-1)
    return norms if norms.isfinite().all() else torch.linalg.vector_norm(x * SCALE, dim=-1) / SCALE


def _map_channels(x: Tensor, factors: Tensor, shift: Tensor) -> Tensor:
    """``factors * x + shift`` per channel: as batch normalization in eval mode the fastest of torch's operations."""
    return F.batch_norm(x, torch.zeros_like(shift), torch.ones_like(shift), factors, shift, eps=0.0)


def _sums_per_channel(x: Tensor, grad: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of ``grad * (x - center)`` and of ``grad``, in one pass: parts of the gradient of batch normalization."""
    ones = torch.ones_like(center)
    _, products, sums = torch.ops.aten.native_batch_norm_backward(
        grad, x, ones, center, ones, None, None, False, 0.0, [False, True, True]
    )
    return products, sums


def _sums_per_copy(values: Float[Tensor, "channels"], field_type: FieldType) -> Float[Tensor, "copies"]:
    return torch.cat([piece.sum(dim=(0, 1, 2)) for piece in split_runs(field_type, values[None])])


def _deviation(rms: Tensor, eps: float) -> Tensor:
    if is_exported():  # torch.hypot has no counterpart in ONNX
        return (rms.square() + eps).sqrt()
    return torch.hypot(rms, rms.new_tensor(eps**0.5))


def _scalars_and_others(x: Tensor, field_type: FieldType) -> tuple[Tensor, Tensor]:
    """Channels of degree 0 and of all other degrees, ``(batch, part, channel, *space)``."""
    halves = x.unflatten(1, (field_type.parts, -1))
    scalars = field_type.multiplicity(0)
    return halves[:, :, :scalars], halves[:, :, scalars:]


def _widen(scalars: Float[Tensor, "part scalars"], field_type: FieldType) -> Float[Tensor, "channels"]:
    """Pad values of the scalars with zeros for all other channels."""
    others = field_type.channels // field_type.parts - scalars.shape[1]
    return F.pad(scalars, (0, others)).flatten()
