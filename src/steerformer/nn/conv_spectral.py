"""Convolution by the Fourier transform: a product of spectra instead of a sum over the voxels of the kernel.

Grids are cut into overlapping tiles of about ten voxels, so that the spectrum of the kernel stays small and all tiles
share it. Transforms of this size are fastest as matrix products. Each product moves the transformed axis from the last
place to the first, so frequencies end up in front of batch and channels, as the product of spectra needs them, without
any copy. Results equal those of a plain convolution up to rounding.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steerformer.nn.conv_tiles import Plan, axes_of, cheapest_tiles, cut, cut_outputs, join, make_plan, overlap_add
from steerformer.nn.ops import pad

_GROUP = 1 << 22  # entries of spectra in memory at once, besides those of the kernel
_LARGEST = 1 << 24  # entries of the spectrum of a kernel in memory at once: 128 MB in single precision
_ZERO = torch.zeros(())  # an empty sum


def spectral_convolve(
    x: Float[Tensor, "batch in *space"],
    kernel: Float[Tensor, "2 half_out half_in *size"],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: int,
    *,
    in_parts: int,
    out_parts: int,
) -> Float[Tensor, "batch out *new"]:
    """Convolve a field of ``in_parts`` with a complex kernel, given as real and imaginary part; negative padding crops.

    Without an imaginary part in the output, it is not computed. First derivatives keep the input only and compute its
    spectrum again.
    """
    axes = axes_of(x.shape[2:], kernel.shape[3:], stride, padding, dilation)
    _, lengths = cheapest_tiles(x.shape[0], kernel.shape[2], kernel.shape[1], axes)
    x, plan = pad(x, [min(p, 0) for p in padding]), make_plan(lengths, x.dtype, x.device)
    out: Tensor = _Spectral.apply(x, kernel, plan, in_parts, out_parts)
    return out


class _Spectral(torch.autograd.Function):
    """The convolution; its backward takes the same transforms, and with ``create_graph`` plain torch operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, plan: Plan, in_parts: int, out_parts: int) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.plan, ctx.in_parts, ctx.out_parts = plan, in_parts, out_parts
        return _convolve(x, kernel, plan, in_parts, out_parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative follows
            inputs = [value for value in (x, kernel) if value.requires_grad]
            y = _convolve(x, kernel, ctx.plan, ctx.in_parts, ctx.out_parts)
            found = iter(torch.autograd.grad(y, inputs, grad, create_graph=True))
            return *(next(found) if value.requires_grad else None for value in (x, kernel)), None, None, None
        into_x, into_kernel = _gradients(grad, x, kernel, ctx.plan, ctx.in_parts, ctx.out_parts, ctx.needs_input_grad)
        return into_x, into_kernel, None, None, None


def _convolve(x: Tensor, kernel: Tensor, plan: Plan, in_parts: int, out_parts: int) -> Tensor:
    out, into = kernel.shape[1:3]
    spectra = _KernelSpectra(torch.complex(kernel[0], kernel[1]), plan)
    windows = cut(_as_complex(x, in_parts), plan)
    analysis, synthesis = ([getattr(axis, name) for axis in plan] for name in ("analysis", "synthesis"))
    found = []
    for group in windows.split(spectra.group_size(into, out)):
        rows, total = _to_frequencies(group, analysis), _ZERO
        for here, kernels in spectra.chunks():
            spectrum = (analysis[0][here] @ rows.mT).view(-1, len(group), into)
            product = torch.bmm(spectrum, kernels.mT).view(here.stop - here.start, -1)
            total = _add(total, product.mT @ synthesis[0][:, here].mT)
        found.append(_to_points(total, synthesis).view(len(group), out, *(axis.lengths.outputs for axis in plan)))
    y = join(torch.cat(found) if len(found) > 1 else found[0], plan, x.shape[0])
    return torch.cat([y.real, y.imag], dim=1) if out_parts == 2 else y.real.contiguous()


def _gradients(
    grad: Tensor, x: Tensor, kernel: Tensor, plan: Plan, in_parts: int, out_parts: int, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of input and kernel, both conjugated until the end, so that no spectrum has to be conjugated."""
    out, into = kernel.shape[1:3]
    spectra = _KernelSpectra(torch.complex(kernel[0], kernel[1]), plan)
    size = spectra.group_size(into, out)
    analysis, response = ([getattr(axis, name) for axis in plan] for name in ("analysis", "response"))
    synthesis = [axis.synthesis.mT for axis in plan]
    windows = cut(_as_complex(x, in_parts), plan).split(size)
    slopes = cut_outputs(_as_complex(grad, out_parts, conjugate=True), plan).split(size)
    into_x: list[Tensor] = []
    into_kernel = _ZERO
    for group, slope in zip(windows, slopes, strict=True):
        rows = _to_frequencies(group, analysis) if needed[1] else None
        slope_rows, total = _to_frequencies(slope, synthesis), _ZERO
        for here, kernels in spectra.chunks():
            count = here.stop - here.start
            slope_spectrum = (synthesis[0][here] @ slope_rows.mT).view(-1, len(group), out)
            if needed[0]:
                product = torch.bmm(slope_spectrum, kernels).view(count, -1)
                total = _add(total, product.mT @ analysis[0][here])
            if rows is not None:
                spectrum = (analysis[0][here] @ rows.mT).view(-1, len(group), into)
                product = torch.bmm(slope_spectrum.mT, spectrum).view(count, -1)
                into_kernel = _add(into_kernel, product.mT @ response[0][here])
        if needed[0]:
            into_x.append(_to_points(total, [matrix.mT for matrix in analysis]).view(group.shape))
    x_grad = kernel_grad = None
    if needed[0]:
        whole = overlap_add(torch.cat(into_x) if len(into_x) > 1 else into_x[0], plan, x.shape[0])
        x_grad = torch.cat([whole.real, -whole.imag], dim=1) if in_parts == 2 else whole.real.contiguous()
    if needed[1]:
        whole = _to_points(into_kernel, [matrix.mT for matrix in response]).view(kernel.shape[1:])
        kernel_grad = torch.stack([whole.real, -whole.imag])
    return x_grad, kernel_grad


def _add(total: Tensor, more: Tensor) -> Tensor:
    """The sum, in place where no derivative needs the terms."""
    if total is _ZERO:
        return more
    return total + more if torch.is_grad_enabled() else total.add_(more)


class _KernelSpectra:
    """Spectrum of a kernel, in chunks of frequencies along the first axis where the whole would be too large."""

    def __init__(self, kernel: Tensor, plan: Plan) -> None:
        self.out, self.into = kernel.shape[:2]
        self.response = plan[0].response
        self.rows = _to_frequencies(kernel, [axis.response for axis in plan])
        self.frequencies = [axis.lengths.frequencies for axis in plan]
        plane = math.prod(self.frequencies[1:]) * self.out * self.into
        self.size = min(max(_LARGEST // plane, 1), self.frequencies[0])
        self._whole: Tensor | None = None

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Frequencies along the first axis, and spectra ``(frequency, out, in)``."""
        for start in range(0, self.frequencies[0], self.size):
            here = slice(start, min(start + self.size, self.frequencies[0]))
            if self._whole is not None:
                yield here, self._whole
                continue
            spectrum = (self.response[here] @ self.rows.mT).view(-1, self.out, self.into)
            if self.size == self.frequencies[0]:
                self._whole = spectrum
            yield here, spectrum

    def group_size(self, into: int, out: int) -> int:
        """Tiles whose spectra are in memory at once; all of them where the spectrum of the kernel is not."""
        if self.size < self.frequencies[0]:
            return 1 << 40
        return max(_GROUP // (math.prod(self.frequencies) * (into + out)), 1)


def _as_complex(x: Tensor, parts: int, *, conjugate: bool = False) -> Tensor:
    re, im = x.chunk(2, dim=1) if parts == 2 else (x, torch.zeros_like(x))
    return torch.complex(re, -im if conjugate else im)


def _to_frequencies(x: Tensor, transforms: Sequence[Tensor]) -> Tensor:
    """Transform all spatial axes but the first, and move them to the front: ``(frequencies * rest, first axis)``."""
    space = x.shape[x.ndim - len(transforms) :]
    for length, transform in zip(reversed(space[1:]), reversed(transforms[1:]), strict=True):
        x = transform @ x.reshape(-1, length).mT
    return x.reshape(-1, space[0])


def _to_points(x: Tensor, transforms: Sequence[Tensor]) -> Tensor:
    """Inverse of :func:`_to_frequencies`: transform all axes but the first, and move them to the end."""
    for transform in transforms[1:]:
        x = x.reshape(transform.shape[1], -1).mT @ transform.mT
    return x
