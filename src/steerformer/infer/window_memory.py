"""Peak memory of a model as a function of the window size: measured on small windows, extrapolated to larger ones."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from steerformer.infer.memory import measure_peak
from steerformer.models.eval_mode import reference_parameter

_EXTRAPOLATION = 8  # largest ratio of a window's voxels to those of a measured window
_RELIABLE = 32 * 2**20  # bytes; less may come from memory that the process had left over
_MARGIN = 1.5  # allocators keep some of the freed memory


class WindowMemory:
    """Peak memory that a model takes for one window, beyond its parameters.

    Windows of growing size are run on noise and measured, until the requested one is at most eight times as large as
    a measured one. Measurements are kept, so for many files only the first costs this time. Where the system does not
    report memory use, the outputs of all layers are added up, as if nothing were freed.

    Args:
        model: in eval mode; its ``stride`` is the product of its pooling factors.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.stride = model, int(getattr(model, "stride", 1))
        self.measured: dict[int, int] = {}
        """Bytes by number of voxels."""

    def predict(self, voxels: int) -> int:
        """Bytes for a window of this many voxels: interpolated, or in proportion to the largest measured window."""
        sizes = sorted(self.measured)
        taken = [self.measured[size] for size in sizes]
        return math.ceil(_MARGIN * np.interp(voxels, sizes, taken) * max(1.0, voxels / sizes[-1]))

    def calibrate(self, size: Sequence[int], wanted: Callable[[], int], available: int) -> None:
        """Measure windows of a volume of this size until ``wanted()``, the voxels of the window to run, is in reach.

        Except for the first, no window is run that is predicted to take more than half of ``available`` bytes.
        """
        side = 4 * self.stride
        while True:
            window = tuple(min(side, n) for n in size)
            if math.prod(window) not in self.measured:
                self.measure(window)
            voxels, largest = wanted(), max(self.measured)
            is_reliable = self.measured[largest] >= _RELIABLE and 4 * self.predict(voxels) <= available
            in_reach = voxels <= _EXTRAPOLATION * largest
            if is_reliable or in_reach or self.predict(_EXTRAPOLATION * largest) > available / 2:
                return
            side *= 2

    def measure(self, window: Sequence[int]) -> None:
        """Run a window of noise and record its peak memory."""
        like = reference_parameter(self.model)
        channels = int(self.model.in_type.channels)  # type: ignore[union-attr, arg-type]
        noise = torch.randn(1, channels, *window, generator=torch.Generator().manual_seed(0)).to(like)
        with torch.no_grad():
            if not self.measured:
                self.model(noise)  # the first call builds kernels and loads libraries
            taken = measure_peak(lambda: self.model(noise.clone()))
            self.measured[math.prod(window)] = _all_outputs(self.model, noise) if taken is None else taken


def _all_outputs(model: nn.Module, x: Tensor) -> int:
    """Bytes of the outputs of all layers together."""
    total = 0

    def count(module: nn.Module, arguments: object, output: object) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel() * output.element_size()

    handles = [module.register_forward_hook(count) for module in model.modules()]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return total
