"""Steerable convolution."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._guards import detect_fake_mode

from steerformer.fields import FieldType, require_field_type
from steerformer.kernels import Family, KernelBasis, Spectrum, VoxelKernels
from steerformer.kernels.voxels import DEFAULT_SPECTRUM, Normalization
from steerformer.nn.bands import bands
from steerformer.nn.conv_basis import basis_convolve
from steerformer.nn.conv_cost import ConvImplementation, cheapest_implementation
from steerformer.nn.conv_direct import direct_convolve, direct_kernels
from steerformer.nn.conv_spectral import spectral_convolve
from steerformer.nn.conv_tiles import axes_of
from steerformer.nn.ops import (
    convolve,
    is_autocast,
    is_traced,
    per_axis,
    require_same_placement,
    require_space,
    without_autocast,
)


class Conv(nn.Module):
    r"""Steerable convolution: the most general linear map that is equivariant to SE(d) (paper, eqs. 1-2).

    $$g(x) = \sum_z K(z)\, f(x+z), \qquad K(Rz) = \rho_{out}(R)\, K(z)\, \rho_{in}(R)^{-1}$$

    Rotating $f$ rotates $g$ (eq. 6): exactly for the rotations of the grid, at other angles up to the impurity of the
    kernels (``docs/kernels.md``). A raw image is an ``in_type`` like any other. A kernel that covers the whole input,
    with ``padding=0``, is the paper's flattening layer. Output degrees that no kernel of this size and tolerance
    reaches stay zero; ``repr`` lists them as silent. Initialization: ``docs/theory.md``.

    The output is centered on the input; otherwise a strided output would rotate about another point. Padding is
    adjusted equally on both sides of an axis. Where no integer padding centers it (an odd kernel with stride 2 on an
    even grid), the call raises ``ValueError`` with advice.

    ``"direct"`` costs at most three real convolutions between complex fields, one if either side is real. Between real
    fields the weights are real, and ``"spectral"`` computes one half of the frequencies only. In eval mode
    without gradients the kernel is cached until the weights change. Each call compares them, which on a GPU waits for
    pending work.

    Args:
        in_type: type of the input.
        out_type: type of the output.
        kernel_size: size of the kernel in voxels, for all axes or for each. Unequal sizes and strides are meant for
            unequal ``spacing``; otherwise only the rotations that keep the kernel's box remain exact.
        stride: distance between outputs in voxels, for all axes or for each.
        padding: ``"same"`` for outputs of ``ceil(size / stride)``, or zeros added on both sides of each axis; either is
            adjusted where centering requires it.
        dilation: distance between the samples of the kernel, in voxels.
        kernel_family: ``"sampled"``, ``"fitted"`` or ``"purest"``; see :class:`~steerformer.kernels.VoxelKernels`.
        tolerance: largest impurity of the kernels.
        normalization: ``"norm"`` or ``"response"``; see :class:`~steerformer.kernels.VoxelKernels`.
        spectrum: power spectrum of the signals that purity refers to.
        spacing: voxel spacing, for all axes or for each; 1 if not given.
        implementation: ``"direct"`` takes torch's convolution with the assembled kernel; ``"spectral"`` multiplies
            spectra, much less work for large kernels and many channels; ``"basis"`` applies the functions of the basis
            first and mixes channels afterwards, for few input channels or few outputs. All agree up to rounding;
            ``"auto"`` chooses on CPUs by the number of operations.

    Shape:
        - Input: $(N, C_{in}, *space)$ with batch size $N$, $C_{in}$ = ``in_type.channels`` and two spatial axes for
          images, three for volumes.
        - Output: $(N, C_{out}, *space_{out})$ with $C_{out}$ = ``out_type.channels`` and along each axis
          ``ceil(size / stride)`` voxels for ``padding="same"``, otherwise
          ``(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``, or one more or fewer for centering.

    >>> import steerformer as sf
    >>> image, features = sf.FieldType.image(sf.SO2, 3), sf.FieldType(sf.SO2, (8, 4, 2))
    >>> sf.nn.Conv(image, features, kernel_size=5)(image.randn(2, 16)).shape
    torch.Size([2, 28, 16, 16])
    """

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        *,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | Literal["same"] = "same",
        dilation: int = 1,
        kernel_family: Family = "fitted",
        tolerance: float = 1e-2,
        normalization: Normalization = "norm",
        spectrum: Spectrum = DEFAULT_SPECTRUM,
        spacing: float | Sequence[float] | None = None,
        implementation: ConvImplementation = "auto",
    ) -> None:
        super().__init__()
        require_field_type(in_type, "Conv")
        require_field_type(out_type, "Conv")
        dim = in_type.group.dim
        if implementation not in get_args(ConvImplementation):
            raise ValueError(f"implementation is one of {get_args(ConvImplementation)}, got {implementation!r}.")
        self.in_type, self.out_type, self.implementation = in_type, out_type, implementation
        self.kernel_size = per_axis(kernel_size, dim, "kernel_size")
        self.stride = per_axis(stride, dim, "stride")
        same = isinstance(padding, str) and padding == "same"  # an array would compare elementwise
        self.padding: tuple[int, ...] | Literal["same"] = "same" if same else per_axis(padding, dim, "padding", least=0)
        kernels = VoxelKernels(
            in_type.group,
            self.kernel_size,
            spacing=_along_axes(spacing, dim),
            dilation=dilation,
            family=kernel_family,
            tolerance=tolerance,
            normalization=normalization,
            spectrum=spectrum,
        )
        self.dilation = kernels.dilation
        self._require_same_is_possible()
        self.basis = KernelBasis(in_type, out_type, kernels)
        if self.basis.num_weights == 0:
            raise ValueError(
                f"no kernel of size {self.kernel_size} joins {in_type} to {out_type} with an impurity of at most "
                f"{tolerance}; use a larger kernel, a larger tolerance, or degrees closer together."
            )
        self.weight = nn.Parameter(torch.empty(self.basis.weight_parts, self.basis.num_weights))
        self._bands = bands(self.basis)
        self._cache: dict[str, _KernelCache] = {}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"."""
        paths = iter(self.basis.paths)
        gains = [torch.tensor([next(paths).gain for _ in range(shape[2])]) for shape in self.basis.weight_shapes]
        peaks = [gain.amax(dim=1) if len(gain) else gain.new_ones(0) for gain in gains]
        total = dict.fromkeys(self.out_type.degrees, torch.zeros(()))  # of each output degree, at each frequency
        for (degree, _), shape, gain, peak in zip(
            self.basis.pairs, self.basis.weight_shapes, gains, peaks, strict=True
        ):
            if len(gain):
                total[degree] = total[degree] + shape[1] * (gain / peak[:, None]).sum(dim=0)
        deviations = []
        for (degree, _), shape, peak in zip(self.basis.pairs, self.basis.weight_shapes, peaks, strict=True):
            orders = self.in_type.group.irrep_dim(degree)
            variance = orders / (peak * total[degree].max() * self.in_type.parts)
            deviations.append(variance.sqrt().expand(shape).flatten())
        with torch.no_grad():
            self.weight.normal_().mul_(torch.cat(deviations).to(self.weight))

    def kernel(self) -> Float[Tensor, "out in *size"]:
        """The kernel as the real weight of a plain torch convolution."""
        return self.basis(self.weight)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *new"]:
        """Convolve a field of type ``in_type``."""
        require_space(self.in_type, x, "Conv")
        require_same_placement(x, self.weight, "Conv")
        padding = self._margins(x.shape[2:])
        in_parts, out_parts = self.in_type.parts, self.out_type.parts
        implementation = self._implementation(x, padding)
        if implementation == "spectral":
            kernel, where = self._kernel("spectral"), (self.stride, padding, self.dilation)
            return spectral_convolve(x, kernel, *where, in_parts=in_parts, out_parts=out_parts)
        apply = partial(convolve, stride=self.stride, padding=padding, dilation=self.dilation)
        if implementation == "basis":
            return basis_convolve(x, self.weight, self.basis, apply)
        kernels = self._kernel("direct")
        return direct_convolve(x, kernels, self._bands, apply, in_parts=in_parts, out_parts=out_parts)

    def _implementation(self, x: Tensor, padding: Sequence[int]) -> ConvImplementation:
        is_plain = not (is_autocast(x) or is_traced(x, self.weight) or _is_stand_in(self.weight))
        is_plain = is_plain and x.dtype.itemsize >= 4
        if self.implementation == "spectral" and not is_plain:
            raise ValueError(
                "spectral convolutions take float32 or float64, without autocast, torch.compile and torch.func; use "
                "implementation='auto' or 'direct'."
            )
        if self.implementation != "auto":
            return self.implementation
        if not is_plain or x.device.type != "cpu":
            return "direct"
        axes = axes_of(x.shape[2:], self.kernel_size, self.stride, padding, self.dilation)
        for_input, for_weight = (torch.is_grad_enabled() and value.requires_grad for value in (x, self.weight))
        return cheapest_implementation(
            self.basis, x.shape[0], axes, input_gradient=for_input, weight_gradient=for_weight
        )

    def _kernel(self, implementation: Literal["direct", "spectral"]) -> Any:
        """The assembled kernel in the form that the implementation takes, from the cache if it is valid."""
        wants_gradient = torch.is_grad_enabled() and self.weight.requires_grad
        if self.training or wants_gradient or _is_stand_in(self.weight):
            return self._assemble(implementation)
        cached = self._cache.get(implementation)
        if cached is None or not cached.belongs_to(self.weight):
            # not an inference tensor: a later call may differentiate by the input
            with torch.inference_mode(False), torch.no_grad():
                cached = _KernelCache(self.weight, self._assemble(implementation))
            current = {name: other for name, other in self._cache.items() if other.belongs_to(self.weight)}
            self._cache = {**current, implementation: cached}  # a new one: replicas share the old one
        return cached.kernel

    def _assemble(self, implementation: Literal["direct", "spectral"]) -> Any:
        with without_autocast(self.weight):  # autocast is meant for products with data only
            whole = self.basis.assemble(self.weight)
        if implementation == "spectral":
            return whole
        return direct_kernels(whole, self._bands, out_real=self.out_type.real, in_real=self.in_type.real)

    def _margins(self, space: Sequence[int]) -> list[int]:
        paddings: Sequence[int | None] = [None] * len(space) if self.padding == "same" else self.padding
        axes = zip(space, self._windows(), self.stride, paddings, strict=True)
        return [centered_margin(*axis) for axis in axes]

    def _windows(self) -> list[int]:
        """Voxels that the kernel spans along each axis."""
        return [(size - 1) * self.dilation + 1 for size in self.kernel_size]

    def _require_same_is_possible(self) -> None:
        for window, stride in zip(self._windows(), self.stride, strict=True):
            if self.padding == "same" and stride == 1 and window % 2 == 0:
                raise ValueError(
                    f'padding="same" with stride 1 needs windows of odd width, got {window} voxels, which would lie '
                    f"half a voxel off center; use a kernel with odd width, or padding=0."
                )

    def train(self, mode: bool = True) -> "Conv":
        self._cache = {}
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "Conv":
        self._cache = {}
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def extra_repr(self) -> str:
        reached = {path.degree_out for path in self.basis.paths}
        silent = ", ".join(str(degree) for degree in self.out_type.degrees if degree not in reached)
        return (
            f"{self.in_type} -> {self.out_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, implementation={self.implementation!r}"
            f"{f', silent degrees: {silent}' if silent else ''}"
        )


class _KernelCache:
    """A kernel, and the weights it was assembled from.

    Weights are compared by value, because some optimizers and ``.data`` change them without a new version; on a CPU
    this is negligible next to a convolution.
    """

    def __init__(self, weight: Tensor, kernel: Any) -> None:
        self.weight, self.kernel = weight.detach().clone(), kernel

    def belongs_to(self, weight: Tensor) -> bool:
        return self.weight.device == weight.device and torch.equal(self.weight, weight)


def _is_stand_in(weight: Tensor) -> bool:
    """Whether the weights have no values, or only for this call: torch.compile, torch.func, meta and fake tensors."""
    return is_traced(weight) or weight.is_meta or detect_fake_mode(weight) is not None


def _along_axes(spacing: float | Sequence[float] | None, dim: int) -> tuple[float, ...] | None:
    if spacing is None:
        return None
    return tuple(spacing) if isinstance(spacing, Iterable) else (spacing,) * dim


def centered_margin(size: int, window: int, stride: int, padding: int | None) -> int:
    """Padding on each side of an axis that centers windows a stride apart on it; negative values crop.

    ``padding`` is the requested padding; ``None`` requests ``ceil(size / stride)`` outputs. Where that cannot be
    centered, there is one output more or fewer: first fewer if padding was requested, because more would need more.
    """
    outputs = -(-size // stride) if padding is None else (size + 2 * padding - window) // stride + 1
    if outputs < 1:
        raise ValueError(f"a window of {window} voxels does not fit into an axis of {size} with padding {padding}.")
    requested = 0 if padding is None else padding
    for count in (outputs, outputs + 1, outputs - 1) if padding is None else (outputs, outputs - 1, outputs + 1):
        both_sides = stride * (count - 1) + window - size
        outside = both_sides >= 2 * window > 2 * requested  # whole windows of zeros that were not requested
        if both_sides % 2 == 0 and count >= 1 and not outside:
            return both_sides // 2
    width, grid = ("odd", "an even") if size % 2 else ("even", "an odd")
    raise ValueError(
        f"a window of {window} voxels with stride {stride} cannot be centered on an axis of {size}: it would need "
        f"half a voxel of padding; use a kernel with {width} width, or {grid} grid, or stride 1 and AvgPool."
    )
