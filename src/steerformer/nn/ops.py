"""The one place where code must know how many axes space has."""

import torch.nn.functional as F
from torch import Tensor

_CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}


def convolve(x: Tensor, kernel: Tensor, *, stride: int = 1, padding: int | list[int] = 0, dilation: int = 1) -> Tensor:
    """``out(x) = sum_z kernel(z) f(x + z)`` over all axes of space."""
    return _CONVOLUTIONS[x.ndim - 2](x, kernel, stride=stride, padding=padding, dilation=dilation)
