"""Steerable convolution."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, require_field_type
from steerformer.kernels import Family, Spectrum, VoxelKernels
from steerformer.kernels.voxels import DEFAULT_SPECTRUM, Normalization
from steerformer.nn.bands import EVERYTHING, bands
from steerformer.nn.conv_basis import basis_convolve
from steerformer.nn.conv_cost import ConvImplementation, cheapest_implementation
from steerformer.nn.conv_direct import direct_convolve, direct_kernels
from steerformer.nn.conv_groups import convolve_together, dense_kernel, group_type, join_groups, split_groups
from steerformer.nn.conv_initialization import expected_errors
from steerformer.nn.conv_kernel import KernelLayer, along_axes, is_stand_in
from steerformer.nn.conv_padding import PaddingMode, centered_margin, pad_margins, require_padding_mode
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
from steerformer.nn.scalar_bias import add_bias, scalar_bias


class Conv(KernelLayer):
    r"""Steerable convolution: the most general linear map that is equivariant to SE(d) (paper, eqs. 1-2).

    $$g(x) = \sum_z K(z)\, f(x+z), \qquad K(Rz) = \rho_{out}(R)\, K(z)\, \rho_{in}(R)^{-1}$$

    Rotating $f$ rotates $g$ (eq. 6): exactly for the rotations of the grid, at other angles up to the impurity of the
    kernels (``docs/kernels.md``). A raw image is an ``in_type`` like any other. A kernel that covers the whole input,
    with ``padding=0``, is the paper's flattening layer. Output degrees that no kernel of this size and purity reaches
    stay zero; ``repr`` lists them as silent, and for the others the relative equivariance error at arbitrary angles
    that is expected at initialization (:attr:`expected_error`). Initialization: ``docs/theory.md``.

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
        padding: ``"same"`` for outputs of ``ceil(size / stride)``, or voxels added on both sides of each axis; either
            is adjusted where centering requires it.
        dilation: distance between the samples of the kernel, in voxels.
        kernel_family: ``"sampled"``, ``"fitted"`` or ``"purest"``; see :class:`~steerformer.kernels.VoxelKernels`.
        max_impurity: largest impurity of the kernels, a share of energy: the relative error of a kernel at arbitrary
            angles is the square root of twice its impurity, up to 14 % by default.
        normalization: ``"norm"`` or ``"response"``; see :class:`~steerformer.kernels.VoxelKernels`.
        spectrum: power spectrum of the signals that purity refers to.
        spacing: voxel spacing, for all axes or for each; 1 if not given.
        implementation: ``"direct"`` takes torch's convolution with the assembled kernel; ``"spectral"`` multiplies
            spectra, much less work for large kernels and many channels; ``"basis"`` applies the functions of the basis
            first and mixes channels afterwards, for few input channels or few outputs. All agree up to rounding;
            ``"auto"`` chooses on CPUs by the number of operations.
        padding_mode: what lies outside the grid, as in torch: ``"zeros"``; ``"reflect"``, the grid reflected at its
            outermost voxels; ``"replicate"``, these voxels repeated; ``"circular"``, the grid repeated.
        groups: divide the copies of every degree into so many equal groups; each group of the output is a convolution
            of the same group of the input, in order. Takes ``1 / groups`` of the arithmetic and of the weights.
        bias: add a learned constant to the scalars of the output, initially zero. Rotations keep it, because they act
            on degree 0 trivially.

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
        max_impurity: float = 1e-2,
        normalization: Normalization = "norm",
        spectrum: Spectrum = DEFAULT_SPECTRUM,
        spacing: float | Sequence[float] | None = None,
        implementation: ConvImplementation = "auto",
        padding_mode: PaddingMode = "zeros",
        groups: int = 1,
        bias: bool = False,
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
        require_padding_mode(padding_mode)
        self.padding_mode = padding_mode
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
        self._require_same_is_possible()
        self._create_weights(group_type(in_type, groups), group_type(out_type, groups), kernels, groups)
        self.bias = scalar_bias(out_type, "Conv") if bias else None
        self._bands = bands(self.basis)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, with the variances of ``docs/theory.md``, "Initialization"; the bias is zero."""
        self._draw_weights()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def expected_error(self) -> dict[int, float]:
        """Relative equivariance error of each output degree at arbitrary angles, expected of initial weights.

        The root mean square over random rotations, draws of the weights, and signals of the kernels' spectrum with unit
        variance in every channel; ``docs/kernels.md`` derives it. Output degrees that no kernel reaches are left out.
        """
        return expected_errors(self.basis)

    def kernel(self) -> Float[Tensor, "out in *size"]:
        """The kernel as the real weight of a plain torch convolution; between different groups it is zero."""
        kernels = [self.basis(weight) for weight in self._weights()]
        return kernels[0] if self.groups == 1 else dense_kernel(kernels, self.in_type, self.out_type)

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *new"]:
        """Convolve a field of type ``in_type``."""
        require_space(self.in_type, x, "Conv")
        require_same_placement(x, self.weight, "Conv")
        x, padding = pad_margins(x, self._margins(x.shape[2:]), self.padding_mode)
        implementation = self._implementation(x, padding)
        if self.groups == 1:
            y = self._convolve(x, self._kernels(implementation)[0], implementation, padding)
        else:
            y = self._convolve_groups(split_groups(self.in_type, x, self.groups), implementation, padding)
        return y if self.bias is None else add_bias(y, self.bias, self.out_type)

    def _kernels(self, implementation: ConvImplementation) -> Sequence[Any]:
        """What the implementation takes for each group: its kernel, or its weights."""
        return self._weights() if implementation == "basis" else self._kernel(implementation)

    def _convolve(self, x: Tensor, kernel: Any, implementation: ConvImplementation, padding: Sequence[int]) -> Tensor:
        """Convolve one group by itself."""
        parts = {"in_parts": self.in_type.parts, "out_parts": self.out_type.parts}
        if implementation == "spectral":
            return spectral_convolve(x, kernel, self.stride, padding, self.dilation, **parts)
        apply = self._plain_convolution(padding)
        if implementation == "basis":
            return basis_convolve(x, kernel, self.basis, apply)
        return direct_convolve(x, kernel, self._bands, apply, **parts)

    def _convolve_groups(self, x: Tensor, implementation: ConvImplementation, padding: Sequence[int]) -> Tensor:
        """Convolve ``(batch, group, channel, *space)``: with the assembled kernels at once, otherwise one by one."""
        if implementation == "direct":
            y = convolve_together(x, self._kernel("together"), self._plain_convolution(padding, self.groups))
        else:
            each = zip(x.unbind(dim=1), self._kernels(implementation), strict=True)
            y = torch.stack([self._convolve(*group, implementation, padding) for group in each], dim=1)
        return join_groups(self.out_type, y)

    def _plain_convolution(self, padding: Sequence[int], groups: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
        return partial(convolve, stride=self.stride, padding=padding, dilation=self.dilation, groups=groups)

    def _implementation(self, x: Tensor, padding: Sequence[int]) -> ConvImplementation:
        is_plain = not (is_autocast(x) or is_traced(x, self.weight) or is_stand_in(self.weight))
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

    def _assemble(self, form: str) -> Any:
        """Kernels of each group; ``"together"`` those of torch's grouped convolutions."""
        with without_autocast(self.weight):  # autocast is meant for products with data only
            kernels = [self.basis.assemble(weight) for weight in self._weights()]
        if form == "spectral":
            return kernels
        real = {"out_real": self.out_type.real, "in_real": self.in_type.real}
        if form == "together":
            found = [direct_kernels(kernel, [EVERYTHING], **real)[0] for kernel in kernels]
            return [torch.cat(of_groups) for of_groups in zip(*found, strict=True)]
        return [direct_kernels(kernel, self._bands, **real) for kernel in kernels]

    def _weights(self) -> Sequence[Tensor]:
        """Weights of each group."""
        return [self.weight] if self.groups == 1 else self.weight.chunk(self.groups, dim=1)

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

    def extra_repr(self) -> str:
        errors = ", ".join(f"{error:.1e} (degree {degree})" for degree, error in self.expected_error.items())
        options = {"padding_mode": (self.padding_mode, "zeros"), "groups": (self.groups, 1)}
        chosen = "".join(f", {name}={value!r}" for name, (value, default) in options.items() if value != default)
        return (
            f"{self.in_type} -> {self.out_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, implementation={self.implementation!r}{chosen}"
            f"{'' if self.bias is None else ', bias=True'}, relative error expected at arbitrary angles, at "
            f"initialization: {errors}{self._describe_silent()}"
        )
