"""Steerable transposed convolution: learned upsampling."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.kernels import Family, KernelBasis, Spectrum, VoxelKernels
from steerformer.kernels.voxels import DEFAULT_SPECTRUM, Normalization
from steerformer.nn.conv_kernel import KernelLayer, along_axes
from steerformer.nn.ops import convolve_transposed, per_axis, require_same_placement, require_space, without_autocast
from steerformer.nn.scalar_bias import add_bias, scalar_bias

_FREQUENCIES = 8  # along each axis, at which the energy of initial weights is compared


class ConvTranspose(KernelLayer):
    r"""Steerable transposed convolution: upsampling by the stride, the adjoint of a strided :class:`Conv`.

    $$g(y) = \sum_x K(y - s x)\, f(x), \qquad K(Rz) = \rho_{out}(R)\, K(z)\, \rho_{in}(R)^{-1}$$

    with the stride $s$, and positions counted from the centers of both grids. With the kernel $K(z)^\dagger$ it is the
    transposed map of the convolution $f(x) = \sum_z K(z)\, g(sx + z)$ between the types swapped.

    Rotating $f$ rotates $g$, exactly for the rotations of the grid. At other angles :class:`Resample` and then
    :class:`Conv` are better, as equivariant as :class:`Conv` alone: here only every $s$-th voxel of the kernel along
    each axis reaches a voxel of the output, and these few are not steerable. On smooth features that costs errors of a
    few percent in 2D, and in 3D up to the size of the output itself for degree 2 (``docs/layers.md``).

    The output is centered on the input: what the kernel reaches is cropped equally on both sides. Where the difference
    is odd, as for an odd kernel with an even stride and the default size, the call raises ``ValueError`` with advice.
    Unless ``kernel_size`` is a multiple of the stride, more voxels of the kernel reach some voxels of the output than
    others, which are then checkered. Initialization: ``docs/theory.md``.

    Args:
        in_type: type of the input.
        out_type: type of the output.
        kernel_size: size of the kernel in voxels of the output, for all axes or for each.
        stride: upsampling factor, for all axes or for each.
        dilation: distance between the samples of the kernel, in voxels of the output.
        kernel_family: ``"sampled"``, ``"fitted"`` or ``"purest"``; see :class:`~steerformer.kernels.VoxelKernels`.
        max_impurity: largest impurity of the kernels, a share of energy; see :class:`Conv`.
        normalization: ``"norm"`` or ``"response"``; see :class:`~steerformer.kernels.VoxelKernels`.
        spectrum: power spectrum of the signals that purity refers to, on the grid of the output.
        spacing: voxel spacing of the output, for all axes or for each; 1 if not given.
        bias: add a learned constant to the scalars of the output, initially zero.

    Shape:
        - Input: $(N, C_{in}, *space)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and two spatial axes for
          images, three for volumes.
        - Output: $(N, C_{out}, *space_{out})$ with $C_{out}$ = ``out_type.channels``, of the given size or
          ``stride * size`` along each axis.

    >>> import steerformer as sf
    >>> features, fewer = sf.FieldType(sf.SO2, (8, 4)), sf.FieldType(sf.SO2, (4, 2))
    >>> sf.nn.ConvTranspose(features, fewer, kernel_size=4, stride=2)(features.randn(2, 8)).shape
    torch.Size([2, 12, 16, 16])
    """

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        *,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        dilation: int = 1,
        kernel_family: Family = "fitted",
        max_impurity: float = 1e-2,
        normalization: Normalization = "norm",
        spectrum: Spectrum = DEFAULT_SPECTRUM,
        spacing: float | Sequence[float] | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        require_field_type(in_type, "ConvTranspose")
        require_field_type(out_type, "ConvTranspose")
        dim = in_type.group.dim
        self.in_type, self.out_type = in_type, out_type
        self.kernel_size = per_axis(kernel_size, dim, "kernel_size")
        self.stride = per_axis(stride, dim, "stride")
        kernels = VoxelKernels(
            in_type.group,
            self.kernel_size,
            spacing=along_axes(spacing, dim),
            dilation=dilation,
            family=kernel_family,
            max_impurity=max_impurity,
            normalization=normalization,
            spectrum=spectrum,
        )
        self.dilation = kernels.dilation
        self._create_weights(in_type, out_type, kernels)
        self.bias = scalar_bias(out_type, "ConvTranspose") if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"; the bias is zero."""
        self._draw_weights(upsampled_energies(self.basis, self.stride, self.dilation))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def kernel(self) -> Float[Tensor, "out in *size"]:
        """The real kernel $K$; with its first two axes swapped, the weight of torch's transposed convolution."""
        return self.basis(self.weight)

    def forward(
        self, x: Float[Tensor, "batch in *space"], size: int | Sequence[int] | None = None
    ) -> Float[Tensor, "batch out *new"]:
        """Upsample a field of type ``in_type``.

        Args:
            x: the field.
            size: size of the output, for all axes or for each, such as that of the input of a strided convolution;
                ``stride * size`` of the input by default.
        """
        require_space(self.in_type, x, "ConvTranspose")
        require_same_placement(x, self.weight, "ConvTranspose")
        crop = centered_crops(x.shape[2:], self.kernel_size, self.stride, self.dilation, size)
        kernel = self._kernel("direct")
        y = convolve_transposed(x, kernel, stride=self.stride, crop=crop, dilation=self.dilation)
        return y if self.bias is None else add_bias(y, self.bias, self.out_type)

    def _assemble(self, form: str) -> Any:
        with without_autocast(self.weight):  # autocast is meant for products with data only
            return self.basis(self.weight)

    def extra_repr(self) -> str:
        return (
            f"{self.in_type} -> {self.out_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"dilation={self.dilation}{'' if self.bias is None else ', bias=True'}{self._describe_silent()}"
        )


def centered_crops(
    space: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    dilation: int,
    size: int | Sequence[int] | None,
) -> list[int]:
    """Voxels to crop on each side of every axis for an output of ``size``; negative where zeros are added."""
    wanted = [None] * len(space) if size is None else per_axis(size, len(space), "the size of ConvTranspose")
    windows = [(n - 1) * dilation + 1 for n in kernel_size]
    return [centered_crop(*axis) for axis in zip(space, windows, stride, wanted, strict=True)]


def centered_crop(size: int, window: int, stride: int, wanted: int | None) -> int:
    """Voxels to crop on each side so that ``size`` windows a stride apart give ``wanted`` voxels, ``stride * size``.

    Negative values add zeros, which only a stride larger than the window needs.
    """
    reached, default = (size - 1) * stride + window, stride * size
    target = default if wanted is None else wanted
    if target > max(reached, default):
        raise ValueError(
            f"a window of {window} voxels with stride {stride} gives at most {max(reached, default)} voxels from "
            f"{size}, got size {target}; use a larger kernel or stride."
        )
    if (reached - target) % 2:
        raise ValueError(
            f"a window of {window} voxels with stride {stride} cannot give {target} voxels centered on an axis of "
            f"{size}, which needs half a voxel; use a kernel whose width is {'odd' if window % 2 == 0 else 'even'}, "
            f"or pass a size of {target - 1} or {target + 1}."
        )
    return (reached - target) // 2


def upsampled_energies(basis: KernelBasis, stride: Sequence[int], dilation: int) -> list[Tensor]:
    r"""Energy of the output of each path for a plane wave on the coarse grid, for each of ``basis.pairs``.

    On the fine grid the wave has $\prod_i s_i$ images of amplitude $1/\prod_i s_i$, whose frequencies agree on the
    coarse grid. Couplings preserve norms, so the energy is that of the path's harmonic kernel.
    """
    with torch.device("cpu"):  # values are needed, even if the layer is built on "meta"
        energies = {path.harmonic: Tensor() for path in basis.paths}
        for harmonic in energies:
            energies[harmonic] = _image_energies(basis.source.functions(harmonic).values, stride, dilation)
        paths, curves = iter(basis.paths), []
        for shape in basis.weight_shapes:
            of_pair = [next(paths) for _ in range(shape[2])]
            rows = [energies[path.harmonic][path.profile] for path in of_pair]
            curves.append(torch.stack(rows).to(torch.get_default_dtype()) if rows else torch.zeros(0, 1))
    return curves


def _image_energies(values: Tensor, stride: Sequence[int], dilation: int) -> Float[Tensor, "function frequency"]:
    """Energies of functions ``(function, order, *points)``, summed over orders and images, at coarse frequencies."""
    spectrum = values.to(torch.complex128)
    for step in stride:  # transforms the first of the spatial axes and moves it to the end
        count, taps = step * _FREQUENCIES, torch.arange(spectrum.shape[2], dtype=torch.float64)
        phases = 2 * math.pi / count * dilation * taps[:, None] * torch.arange(count, dtype=torch.float64)
        spectrum = torch.tensordot(spectrum, torch.polar(torch.ones_like(phases), phases), dims=([2], [0]))
    energy = spectrum.abs().square().sum(dim=1)
    for axis, step in enumerate(stride, start=1):
        energy = energy.unflatten(axis, (step, _FREQUENCIES)).sum(dim=axis)
    return energy.flatten(1) / math.prod(stride) ** 2
