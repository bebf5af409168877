"""Convolution with the assembled kernel: torch's own convolution of real and imaginary parts."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.kernels.basis import real_kernel
from steerformer.nn.bands import Band
from steerformer.nn.ops import is_traced

_CHANNELS_TOGETHER = 8
"""Torch's convolutions on CPUs compute so many channels at once, and fewer take as long."""


def direct_kernels(
    kernel: Float[Tensor, "part half_out half_in *size"], bands: Sequence[Band], *, out_real: bool, in_real: bool
) -> list[tuple[Tensor, ...]]:
    """Real kernels of each band: three for complex arithmetic, or a single one where that is less work."""
    return [_kernels_of_band(kernel[:, band.out, band.inp], out_real=out_real, in_real=in_real) for band in bands]


def direct_convolve(
    x: Float[Tensor, "batch in *space"],
    kernels: Sequence[tuple[Tensor, ...]],
    bands: Sequence[Band],
    convolve: Callable[[Tensor, Tensor], Tensor],
    *,
    out_parts: int,
    in_parts: int,
) -> Float[Tensor, "batch out *new"]:
    """Convolve band by band with the real kernels, by ``convolve(input, kernel)``."""
    parts = x.chunk(in_parts, dim=1)
    found = [
        _convolve_band([part[:, band.inp] for part in parts], here, convolve)
        for band, here in zip(bands, kernels, strict=True)
        if band.inp.stop
    ]
    if len(bands) == 1:
        return torch.cat(found[0], dim=1) if len(found[0]) > 1 else found[0][0]
    found = [list(pieces[0].chunk(out_parts, dim=1)) if len(pieces) == 1 else pieces for pieces in found]
    reached = iter(found)
    full = [next(reached) if band.inp.stop else _zeros(band, found[0]) for band in bands]
    return torch.cat([piece for pieces in zip(*full, strict=True) for piece in pieces], dim=1)


def padded_products(into: int, out: int) -> int:
    """Products of channels that a torch convolution on a CPU computes."""
    return _padded(into) * _padded(out)


def _padded(channels: int) -> int:
    return -(-channels // _CHANNELS_TOGETHER) * _CHANNELS_TOGETHER


def _kernels_of_band(kernel: Tensor, *, out_real: bool, in_real: bool) -> tuple[Tensor, ...]:
    out, into = kernel.shape[1:3]
    if out_real or in_real or padded_products(2 * into, 2 * out) <= 3 * padded_products(into, out):
        return (real_kernel(kernel, out_real=out_real, in_real=in_real),)
    re, im = kernel
    return re, im, re + im


def _convolve_band(
    parts: list[Tensor], kernels: tuple[Tensor, ...], convolve: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """Parts of the output, one tensor each, or one tensor for all."""
    if len(kernels) == 1:
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return [
            _convolve_to_few(x, kernels[0], convolve) if _has_few_outputs(x, kernels[0]) else convolve(x, kernels[0])
        ]
    real, imaginary = parts
    # Gauss's trick: three real products instead of four
    a, b, both = convolve(real, kernels[0]), convolve(imaginary, kernels[1]), convolve(real + imaginary, kernels[2])
    return [a - b, both - a - b]


def _has_few_outputs(x: Tensor, kernel: Tensor) -> bool:
    """Whether a convolution on a CPU has many input and few output channels: then channels are best the last axis."""
    out, into = kernel.shape[:2]
    return out <= _CHANNELS_TOGETHER <= into and x.device.type == "cpu" and not is_traced(x, kernel)


def _convolve_to_few(x: Tensor, kernel: Tensor, convolve: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    layout = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    return convolve(x.contiguous(memory_format=layout), kernel).contiguous()


def _zeros(band: Band, like: list[Tensor]) -> list[Tensor]:
    """Zeros for the output degrees that no kernel reaches."""
    shape = (like[0].shape[0], band.out.stop - band.out.start, *like[0].shape[2:])
    return [like[0].new_zeros(shape)] * len(like)
