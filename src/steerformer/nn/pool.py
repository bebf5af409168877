"""Coarser grids whose center stays where it was."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType, as_number, require_field_type
from steerformer.nn.ops import average_pool, mean_of_neighbors, pad, per_axis, require_space


class AvgPool(nn.Module):
    r"""Means over windows a stride apart, centered on the grid whatever its size.

    A grid that the windows do not fill exactly is cropped alike on both sides; where that leaves half a voxel, windows
    are shifted by half a voxel and share the voxels at their edges (a window of 2 becomes 1/4, 1/2, 1/4). Other pooling
    starts at the first voxel, and so turns about another center than its input.

    ``antialiased`` takes Gaussian windows of standard deviation ``blur * stride`` instead, which pass less of what the
    coarse grid cannot show; there are ``size // stride`` of them and the outside counts as zero. Of the finest waves
    that the coarse grid can show a ``blur`` of 0.45 passes 37 % (of the amplitude), one of 0.7 only 9 %: sharp surfaces
    alias less, and look blurrier. An axis with stride 1 stays as it is.

    Args:
        field_type: type of input and output.
        kernel_size: width of the windows in voxels, for all axes or for each. Unequal widths and strides are for
            voxels that are not cubes; else only turns that keep the window remain exact.
        stride: distance between windows; by default their width, and for Gaussian windows always.
        antialiased: Gaussian windows.
        blur: their standard deviation in strides.
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
                f"the width of antialiased windows follows from their stride: leave stride out, or make it equal to "
                f"kernel_size; got kernel_size {self.kernel_size} and stride {self.stride}."
            )

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *coarse"]:
        require_space(self.in_type, x, "AvgPool")
        for i, (n, size) in enumerate(zip(x.shape[2:], self.kernel_size, strict=True)):
            if n < size:
                raise ValueError(f"a window of {size} voxels does not fit into axis {i} of space, which has {n}.")
        if self.antialiased:
            for axis, stride in enumerate(self.stride, start=2):
                x = _gaussian_samples(x, axis, stride, self.blur * stride)
            return x
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


def _gaussian_samples(x: Tensor, axis: int, stride: int, deviation: float) -> Tensor:
    """Samples ``stride`` apart and centered on one axis, each a Gaussian mean of the voxels around it.

    As a product with a matrix, most of it zeros: still several times faster than torch's convolution of single lines.
    """
    if stride == 1:
        return x
    size = x.shape[axis]
    count = size // stride
    first = (size - 1) / 2 - stride * (count - 1) / 2  # whole or half voxel
    reach = math.ceil(3 * deviation - (first % 1)) + first % 1  # three deviations, from the sample to the last voxel
    samples = first + stride * torch.arange(count, dtype=torch.float64, device=x.device)
    offsets = torch.arange(size, dtype=torch.float64, device=x.device)[:, None] - samples
    taps = torch.where(offsets.abs() <= reach, _bell(offsets, deviation), 0)
    whole = _bell(torch.arange(-reach, reach + 1, dtype=torch.float64, device=x.device), deviation).sum()
    return (x.movedim(axis, -1) @ (taps / whole).to(x)).movedim(-1, axis)


def _bell(offsets: Tensor, deviation: float) -> Tensor:
    return torch.exp(-(offsets**2) / (2 * deviation**2))
