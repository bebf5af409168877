"""Equivariant average pooling."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.exported import centered_voxels, is_surely_zero, is_symbolic
from steerformer.nn.ops import average_pool, mean_of_neighbors, pad, per_axis, require_space
from steerformer.nn.separable import gaussian_windows, has_fast_products, map_axes


class AvgPool(nn.Module):
    r"""Equivariant average pooling: means over windows that are centered on grids of any size.

    $$g(x) = \sum_z w(z)\, f(x + z), \qquad w(Rz) = w(z)$$

    Windows are symmetric and centered, so pooling commutes exactly with the rotations of the grid. A grid that the
    windows do not fill is cropped equally on both sides; where that leaves half a voxel, windows are shifted by half a
    voxel and share the voxels at their edges (a window of 2 has weights 1/4, 1/2, 1/4). Torch's pooling starts at the
    first voxel, so its output rotates about another center.

    ``antialiased`` uses Gaussian windows of standard deviation ``blur * stride``, truncated at three deviations, with
    zeros outside the grid. They suppress frequencies that the coarse grid cannot represent. At its highest frequency a
    ``blur`` of 0.45 passes 37 % of the amplitude and a ``blur`` of 0.7 passes 9 %: less aliasing, but blurrier.

    Args:
        field_type: type of input and output.
        kernel_size: size of the windows in voxels, for all axes or for each. Unequal sizes and strides are meant for
            unequal voxel spacing; otherwise only the rotations that keep the window remain exact.
        stride: distance between windows; ``kernel_size`` by default, and always with ``antialiased``.
        antialiased: use Gaussian windows; axes with stride 1 stay unchanged.
        blur: standard deviation of the Gaussian windows, in strides.

    Shape:
        - Input: $(N, C, *space)$ with batch size $N$, $C$ = ``field_type.channels`` and two spatial axes for images,
          three for volumes.
        - Output: $(N, C, *space_{out})$ with ``(size - kernel_size) // stride + 1`` voxels along each axis.

    >>> import steerformer as sf
    >>> features = sf.FieldType(sf.SO2, (8, 4))
    >>> sf.nn.AvgPool(features, kernel_size=2)(features.randn(2, 15)).shape
    torch.Size([2, 24, 7, 7])
    """

    def __init__(
        self,
        field_type: FieldType,
        *,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        antialiased: bool = False,
        blur: float = 0.45,
    ) -> None:
        super().__init__()
        require_field_type(field_type, "AvgPool")
        dim = field_type.group.dim
        self.in_type = self.out_type = field_type
        self.kernel_size = per_axis(kernel_size, dim, "kernel_size")
        self.stride = self.kernel_size if stride is None else per_axis(stride, dim, "stride")
        self.antialiased, self.blur = antialiased, as_number(blur)
        if not 0.1 <= self.blur <= 4:
            raise ValueError(f"the blur of AvgPool is a number from 0.1 to 4, in strides, got {blur!r}.")
        if antialiased and self.stride != self.kernel_size:
            raise ValueError(
                f"antialiased windows have stride = kernel_size, got kernel_size {self.kernel_size} and stride "
                f"{self.stride}; leave stride out."
            )

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *coarse"]:
        """Pool a field of type ``in_type``."""
        require_space(self.in_type, x, "AvgPool")
        for i, (n, size) in enumerate(zip(x.shape[2:], self.kernel_size, strict=True)):
            if n < size:
                raise ValueError(f"a window of {size} voxels does not fit into spatial axis {i}, which has {n}.")
        if self.antialiased:
            windows = [
                None if stride == 1 else gaussian_windows(x, axis, n // stride, stride, self.blur * stride)
                for axis, (n, stride) in enumerate(zip(x.shape[2:], self.stride, strict=True), start=2)
            ]
            if has_fast_products(x):
                return map_axes(x, windows)
            for axis, window in enumerate(windows, start=2):
                x = x if window is None else (x.movedim(axis, -1) @ window.matrix.mT).movedim(-1, axis)
            return x
        if is_symbolic(*x.shape[2:]):
            for axis, (size, stride) in enumerate(zip(self.kernel_size, self.stride, strict=True), start=2):
                if not is_surely_zero((x.shape[axis] - size) % stride):
                    x = centered_voxels(x, axis, (x.shape[axis] - size) // stride * stride + size)
            return average_pool(x, self.kernel_size, self.stride)
        margins = []
        for axis, (size, stride) in enumerate(zip(self.kernel_size, self.stride, strict=True), start=2):
            rest = (x.shape[axis] - size) % stride
            if rest % 2:
                x = mean_of_neighbors(x, axis)
            margins.append(-(rest // 2))
        return average_pool(pad(x, margins), self.kernel_size, self.stride)

    def extra_repr(self) -> str:
        windows = f"antialiased=True, blur={self.blur}" if self.antialiased else "antialiased=False"
        return f"{self.in_type}, kernel_size={self.kernel_size}, stride={self.stride}, {windows}"
