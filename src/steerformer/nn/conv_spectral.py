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
from jaxtyping import Float, Shaped
from torch import Tensor

from steerformer.nn.conv_tiles import (
    Plan,
    Slab,
    axes_of,
    cheapest_tiles,
    cut,
    cut_outputs,
    join,
    make_plan,
    overlap_add,
    slabs,
)
from steerformer.nn.metadata import with_metadata, without_metadata
from steerformer.nn.ops import pad
from steerformer.nn.second_derivatives import differentiable_gradients

_GROUP = 1 << 22  # entries of the spectra of tiles in memory at once
_SLAB = 1 << 24  # entries of the spectra of a part of the batch that is cut into tiles at once
_LARGEST = 1 << 24  # entries of the spectrum of a kernel in memory at once: 128 MB in single precision
_KEPT = 1 << 21  # entries of a spectrum, of a kernel or of an input, that is kept for the backward pass


def spectral_convolve(
    x: Float[Tensor, "batch in *space"],
    kernel: Float[Tensor, "part half_out half_in *size"],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: int,
    *,
    in_parts: int,
    out_parts: int,
) -> Float[Tensor, "batch out *new"]:
    """Convolve a field of ``in_parts`` with a complex kernel, given as real and imaginary part; negative padding crops.

    Without an imaginary part in the output, it is not computed. A kernel of one part joins real fields, whose spectra
    follow from one half of the frequencies; the other half is not computed. First derivatives keep input and kernel,
    with their spectra where these are small, and compute larger ones again.
    """
    axes = axes_of(x.shape[2:], kernel.shape[3:], stride, padding, dilation)
    _, lengths = cheapest_tiles(x.shape[0], kernel.shape[2], kernel.shape[1], axes, is_real=len(kernel) == 1)
    cropped, plan = pad(without_metadata(x), [min(p, 0) for p in padding]), make_plan(lengths, x.dtype, x.device)
    out: Tensor = _Spectral.apply(cropped, kernel, plan, in_parts, out_parts)
    return with_metadata(out, x)


class _Spectral(torch.autograd.Function):
    """The convolution; its backward takes the same transforms, and with ``create_graph`` plain torch operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, plan: Plan, in_parts: int, out_parts: int) -> Tensor:
        spectra = _KernelSpectra(kernel, plan)
        y, spectrum = _convolve(x, spectra, in_parts, out_parts)
        kept = spectrum if ctx.needs_input_grad[1] else None  # only the gradient of the kernel needs it
        ctx.save_for_backward(x, kernel, spectra.small(), kept)
        ctx.plan, ctx.in_parts, ctx.out_parts = plan, in_parts, out_parts
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, kernel_spectrum, spectrum = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative follows

            def again(x: Tensor, kernel: Tensor) -> Tensor:
                return _convolve(x, _KernelSpectra(kernel, ctx.plan), ctx.in_parts, ctx.out_parts)[0]

            return *differentiable_gradients(again, (x, kernel), grad), None, None, None
        spectra, parts = _KernelSpectra(kernel, ctx.plan, kernel_spectrum), (ctx.in_parts, ctx.out_parts)
        grad_x, grad_kernel = _gradients(grad, x, spectra, *parts, ctx.needs_input_grad, spectrum)
        return grad_x, grad_kernel, None, None, None


def _convolve(x: Tensor, spectra: "_KernelSpectra", in_parts: int, out_parts: int) -> tuple[Tensor, Tensor | None]:
    """The convolution, and the spectrum of the input if it was computed as a whole and is small."""
    plan, last = spectra.plan, None
    synthesis, groups = [axis.synthesis for axis in plan], 0
    out, into = spectra.kernel.shape[1:3]
    y = x.new_empty(x.shape[0], out_parts * out, *(axis.lengths.axis.outputs for axis in plan))
    for slab in slabs(plan, x.shape[0], into + out, most=spectra.slab):
        found = []
        for spectrum in _window_spectra(x, slab, spectra, in_parts):
            blocks = [_to_points(torch.bmm(spectrum, kernels.mT), synthesis) for _, kernels in spectra.blocks()]
            found.append(torch.cat(blocks, dim=1) if len(blocks) > 1 else blocks[0])
            groups, last = groups + 1, spectrum
        here = join(torch.cat(found) if len(found) > 1 else found[0], slab.plan)
        y[slab.samples, :out, slab.outputs] = here.real
        if out_parts == 2:
            y[slab.samples, out:, slab.outputs] = here.imag
    is_small = groups == 1 and last is not None and last.numel() <= _KEPT
    return y, (last if is_small else None)


def _window_spectra(x: Tensor, slab: Slab, spectra: "_KernelSpectra", in_parts: int) -> Iterator[Tensor]:
    """Spectra of the windows of a slab, some tiles at a time."""
    windows = cut(_as_complex(x[slab.samples, :, slab.voxels], in_parts), slab.plan)
    for group in windows.split(spectra.together):
        yield _to_frequencies(group, [axis.analysis for axis in spectra.plan])


def _gradients(
    grad: Tensor,
    x: Tensor,
    spectra: "_KernelSpectra",
    in_parts: int,
    out_parts: int,
    needed: Sequence[bool],
    spectrum: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of input and kernel, if needed; ``spectrum`` is that of the input, if it was kept."""
    plan, kernel = spectra.plan, spectra.kernel
    out, into = kernel.shape[1:3]
    slabs_of_batch = list(slabs(plan, x.shape[0], into + out, most=spectra.slab))
    several = len(slabs_of_batch) != 1  # they add their gradients to the voxels they share
    grad_x = (x.new_zeros if several else x.new_empty)(x.shape) if needed[0] else None
    grad_kernel = torch.zeros_like(kernel) if needed[1] else None
    for slab in slabs_of_batch:
        windows = _window_spectra(x, slab, spectra, in_parts) if spectrum is None else iter([spectrum])
        grads = _as_complex(grad[slab.samples, :, slab.outputs], out_parts, conjugate=True)
        found = _slab_gradients(windows, cut_outputs(grads, slab.plan), spectra, grad_x is not None, grad_kernel)
        if grad_x is not None and found is not None:
            here = overlap_add(found, slab.plan)
            re, im = (grad_x[slab.samples, part, slab.voxels] for part in (slice(into), slice(into, None)))
            if several:
                re.add_(here.real)
            else:
                re.copy_(here.real)
            if in_parts == 2 and several:
                im.sub_(here.imag)
            elif in_parts == 2:
                torch.neg(here.imag, out=im)
    return grad_x, grad_kernel


def _slab_gradients(
    windows: Iterator[Tensor],
    grads: Tensor,
    spectra: "_KernelSpectra",
    for_windows: bool,
    grad_kernel: Tensor | None,
) -> Tensor | None:
    """Conjugate gradients of windows, given those of outputs, so that no spectrum has to be conjugated.

    The gradient of the kernel is added to ``grad_kernel``.
    """
    to_grads, to_taps, to_windows = (
        [getattr(axis, name).mT for axis in spectra.plan] for name in ("synthesis", "response", "analysis")
    )
    found = []
    for grad in grads.split(spectra.together):
        spectrum = None if grad_kernel is None else next(windows)
        products = []
        for here, kernels in spectra.blocks():
            grad_spectrum = _to_frequencies(grad[:, here], to_grads)
            if for_windows:
                products.append(torch.bmm(grad_spectrum, kernels))
            if spectrum is not None and grad_kernel is not None:
                block = _to_points(torch.bmm(grad_spectrum.mT, spectrum), to_taps)
                grad_kernel[0, here] += block.real
                if len(grad_kernel) == 2:
                    grad_kernel[1, here] -= block.imag
            if len(products) == 2:
                products = [products[0].add_(products[1])]
        found += [_to_points(product, to_windows) for product in products]
    if not found:
        return None
    return torch.cat(found) if len(found) > 1 else found[0]


class _KernelSpectra:
    """Spectrum of a kernel, in blocks of output channels where the whole would be too large."""

    def __init__(self, kernel: Float[Tensor, "part out in *size"], plan: Plan, whole: Tensor | None = None) -> None:
        self.kernel, self.plan = kernel, plan
        frequencies = math.prod(axis.lengths.frequencies for axis in plan)
        out, into = kernel.shape[1:3]
        self.size = min(max(_LARGEST // (frequencies * into), 1), out)
        self._whole = whole
        together = max(_GROUP // (frequencies * (into + out)), 1)
        self.together = together if self.size == out else 1 << 40
        """Tiles whose spectra are in memory at once: all, where each group would compute the blocks again."""
        self.slab = min(max(_SLAB, frequencies * into * out), 4 * _SLAB)
        """Entries of a slab: more for large kernels, because each slab computes their blocks again."""

    def small(self) -> Tensor | None:
        """The spectrum, if it was computed and is small enough to be kept for the backward pass."""
        return self._whole if self._whole is not None and self._whole.numel() <= _KEPT else None

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Output channels, and spectra ``(frequency, out, in)``."""
        out = self.kernel.shape[1]
        for start in range(0, out, self.size):
            here = slice(start, min(start + self.size, out))
            if self._whole is None:
                re, *im = self.kernel[:, here].unbind()
                block = torch.complex(re, *im) if im else re
                spectrum = _to_frequencies(block, [axis.response for axis in self.plan])
                if self.size == out:
                    self._whole = spectrum
            yield here, spectrum if self._whole is None else self._whole


def _as_complex(x: Tensor, parts: int, *, conjugate: bool = False) -> Tensor:
    """A complex field, or a real one as it is."""
    if parts == 1:
        return x
    re, im = x.chunk(2, dim=1)
    return torch.complex(re, -im if conjugate else im)


def _to_frequencies(
    x: Shaped[Tensor, "row column *points"], transforms: Sequence[Tensor]
) -> Shaped[Tensor, "frequency row column"]:
    """Transform the last axis, move it to the front, and so on until all spatial axes are transformed."""
    rows, columns, *points = x.shape
    for length, transform in zip(reversed(points), reversed(transforms), strict=True):
        x = x.reshape(-1, length).mT
        x = transform @ x if x.is_complex() else torch.complex(transform.real @ x, transform.imag @ x)
    return x.view(-1, rows, columns)


def _to_points(
    x: Shaped[Tensor, "frequency row column"], transforms: Sequence[Tensor]
) -> Shaped[Tensor, "row column *points"]:
    """The way back of :func:`_to_frequencies`, as a view: axes keep their places, which is faster in this direction."""
    rows, columns = x.shape[1:]
    before = 1
    for transform in transforms:
        points, frequencies = transform.shape
        x = torch.bmm(transform.expand(before, -1, -1), x.reshape(before, frequencies, -1))
        before *= points
    return x.view(*(len(transform) for transform in transforms), rows, columns).movedim((-2, -1), (0, 1))
