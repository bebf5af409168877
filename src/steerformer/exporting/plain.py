"""Models for inference, with torch's own convolutions instead of steerable ones."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steerformer.models.monai_unet import MonaiUNet
from steerformer.models.stem import Stem
from steerformer.nn import (
    MLP,
    BatchNorm,
    Conv,
    ConvTranspose,
    Decoder,
    DecoderBlock,
    Encoder,
    Gated,
    TransformerBlock,
)
from steerformer.nn.conv_padding import centered_margin, pad_margins
from steerformer.nn.conv_transpose import centered_crops
from steerformer.nn.ops import convolve_transposed
from steerformer.nn.scalar_bias import add_bias

_CONVOLUTIONS = {2: nn.Conv2d, 3: nn.Conv3d}
_CONTAINERS = (Gated, MLP, TransformerBlock, Encoder, DecoderBlock, Decoder)
"""Layers that only call the layers inside them."""


def plain_module(model: nn.Module) -> nn.Module:
    """A copy of a model for inference whose steerable convolutions are ordinary ``nn.Conv2d`` or ``nn.Conv3d``.

    Kernels are assembled once and for all, those of groups as one with zeros between different groups; batch
    normalizations are one factor and one shift for every channel. All other layers stay, and are expressed in torch's
    operators when the module is exported. Outputs equal those of the model in eval mode up to rounding. The copy cannot
    be trained further as an equivariant network: nothing keeps the kernels steerable.

    Args:
        model: any module with layers of steerformer, such as a model of ``sf.models`` or your own.

    >>> import steerformer as sf
    >>> image, features = sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, "2x0+1x1")
    >>> sf.plain_module(sf.nn.Conv(image, features, kernel_size=5))
    Conv2d(1, 6, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2), bias=False)
    """
    with torch.no_grad():
        return _converted(copy.deepcopy(model).eval().requires_grad_(False), {})


def _converted(module: nn.Module, done: dict[nn.Module, nn.Module]) -> nn.Module:
    """The module with all its layers converted; one that is used twice stays one."""
    if module in done:
        return done[module]
    convert = _CONVERTERS.get(type(module))
    done[module] = convert(module) if convert else module
    if not convert and not _is_closed(module):
        for name, child in list(module._modules.items()):  # named_children() leaves out repeated ones
            if child is not None:
                setattr(module, name, _converted(child, done))
    return done[module]


def _is_closed(module: nn.Module) -> bool:
    """Whether a layer may use more of the layers inside it than calls, so that these have to stay."""
    return type(module).__module__.startswith("steerformer.nn.") and type(module) not in _CONTAINERS


def _plain_conv(layer: Conv) -> nn.Module:
    if all(stride == 1 for stride in layer.stride):
        return _with_margins(layer, [_margin(layer, axis) for axis in range(len(layer.stride))])
    return CenteredConv(layer)


def _plain_stem(stem: Stem) -> Stem:
    """A stem makes the grid even before its convolution, so that margins are the same for all grids."""
    stem.conv = _with_margins(stem.conv, [_margin(stem.conv, axis) for axis in range(len(stem.conv.stride))])  # type: ignore[assignment]
    return stem


def _margin(layer: Conv, axis: int) -> int:
    """Padding along an axis, which is the same for all grids if the stride is 1, or 2 and the grid even."""
    window = (layer.kernel_size[axis] - 1) * layer.dilation + 1
    padding = None if isinstance(layer.padding, str) else layer.padding[axis]
    return centered_margin(4 * window, window, layer.stride[axis], padding)


def _with_margins(layer: Conv, margins: Sequence[int]) -> nn.Module:
    kernel = layer.kernel().detach()
    options: dict[str, Any] = {"stride": layer.stride, "padding": tuple(margins), "dilation": layer.dilation}
    options |= {"padding_mode": layer.padding_mode, "bias": layer.bias is not None}
    kind: Any = _CONVOLUTIONS[layer.in_type.group.dim]
    plain: nn.Module = kind(kernel.shape[1], kernel.shape[0], layer.kernel_size, **options)
    plain.weight = nn.Parameter(kernel.contiguous(), requires_grad=False)
    if layer.bias is not None:
        constant = add_bias(torch.zeros_like(kernel[None, :, 0].flatten(2)[..., 0]), layer.bias, layer.out_type)[0]
        plain.bias = nn.Parameter(constant, requires_grad=False)
    plain.in_type, plain.out_type = layer.in_type, layer.out_type  # type: ignore[assignment]
    return plain


class CenteredConv(nn.Module):
    """Strided convolution whose padding centers the output on a grid of any size, as :class:`~steerformer.nn.Conv`."""

    def __init__(self, layer: Conv) -> None:
        super().__init__()
        self.in_type, self.out_type = layer.in_type, layer.out_type
        self.conv = _with_margins(layer, [0] * len(layer.stride))
        windows = [(size - 1) * layer.dilation + 1 for size in layer.kernel_size]
        paddings = [None] * len(windows) if isinstance(layer.padding, str) else layer.padding
        self._padding_mode = layer.padding_mode
        self._axes = list(zip(windows, layer.stride, paddings, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Pad or crop, and convolve."""
        margins = [centered_margin(n, *axis) for n, axis in zip(x.shape[2:], self._axes, strict=True)]
        x, others = pad_margins(x, margins, self._padding_mode)
        out: Tensor = self.conv(F.pad(x, [margin for margin in reversed(others) for _ in range(2)]))
        return out


class PlainConvTranspose(nn.Module):
    """Transposed convolution with an assembled kernel, centered as :class:`~steerformer.nn.ConvTranspose`."""

    kernel: Tensor

    def __init__(self, layer: ConvTranspose) -> None:
        super().__init__()
        self.in_type, self.out_type = layer.in_type, layer.out_type
        self.register_buffer("kernel", layer.kernel().detach().contiguous())
        self.bias, self.kernel_size = layer.bias, layer.kernel_size
        self.stride, self.dilation = layer.stride, layer.dilation

    def forward(self, x: Tensor, size: int | Sequence[int] | None = None) -> Tensor:
        """Upsample, to ``stride * size`` of the input by default."""
        crop = centered_crops(x.shape[2:], self.kernel_size, self.stride, self.dilation, size)
        y = convolve_transposed(x, self.kernel, stride=self.stride, crop=crop, dilation=self.dilation)
        return y if self.bias is None else add_bias(y, self.bias, self.out_type)


class ChannelAffine(nn.Module):
    """One factor and one shift for every channel: a batch normalization with fixed statistics."""

    factors: Tensor
    shift: Tensor

    def __init__(self, norm: BatchNorm) -> None:
        super().__init__()
        self.in_type = self.out_type = norm.in_type
        exact = copy.deepcopy(norm).double()
        shift, sum_of_both = exact(torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, norm.in_type.channels))
        self.register_buffer("factors", (sum_of_both - shift).to(norm.running_rms))
        self.register_buffer("shift", shift.to(norm.running_rms))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a field."""
        shape = (-1, *(1 for _ in x.shape[2:]))
        return torch.addcmul(self.shift.view(shape), x, self.factors.view(shape))


def _without_windows(model: MonaiUNet) -> MonaiUNet:
    """The network of one window: who runs the file loops over windows."""
    model.config = model.config.model_copy(update={"window": None})
    return model


_CONVERTERS: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    Conv: _plain_conv,
    Stem: _plain_stem,
    ConvTranspose: PlainConvTranspose,
    BatchNorm: ChannelAffine,
    MonaiUNet: _without_windows,
}
