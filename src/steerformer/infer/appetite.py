"""How much memory a model takes for a window: measured on small ones, in proportion for larger ones."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from steerformer.infer.memory import peak_of

_FURTHEST = 8  # times the voxels of a window that was measured
_SURE = 32 * 2**20  # bytes; less may be room that the process had left over
_MARGIN = 1.5  # allocators keep some of what was freed


class Appetite:
    """Memory that a model takes for one window, beyond its parameters.

    Windows of growing size are run on noise and measured, until the one that is asked for is at most eight times as
    large as one of them. What was measured is kept, so that of many files only the first costs this time. Where the
    system does not tell its use of memory, what all layers give is added up, as if nothing were freed.

    Args:
        model: in eval mode; its ``stride`` is what its poolings make of one step.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.stride = model, int(getattr(model, "stride", 1))
        self.measured: dict[int, int] = {}
        """Bytes by number of voxels."""

    def of(self, voxels: int) -> int:
        """Bytes for a window of so many voxels: between those that were measured, or in proportion to the largest."""
        sizes = sorted(self.measured)
        taken = [self.measured[size] for size in sizes]
        return math.ceil(_MARGIN * np.interp(voxels, sizes, taken) * max(1.0, voxels / sizes[-1]))

    def learn(self, size: Sequence[int], wanted: Callable[[], int], room: int) -> None:
        """Measure windows of a volume of this size until ``wanted()``, voxels of the window to be run, is in reach.

        ``room`` is what windows may take: no window is run that seems to take more than half of it, but for the first.
        """
        side = 4 * self.stride
        while True:
            window = tuple(min(side, n) for n in size)
            if math.prod(window) not in self.measured:
                self.measure(window)
            voxels, largest = wanted(), max(self.measured)
            is_sure = self.measured[largest] >= _SURE and 4 * self.of(voxels) <= room
            if is_sure or voxels <= _FURTHEST * largest or self.of(_FURTHEST * largest) > room / 2:
                return
            side *= 2

    def measure(self, window: Sequence[int]) -> None:
        """Run a window of noise and write down what it takes."""
        like = next(self.model.parameters(), torch.zeros(()))
        channels = int(self.model.in_type.channels)  # type: ignore[union-attr, arg-type]
        noise = torch.randn(1, channels, *window, generator=torch.Generator().manual_seed(0)).to(like)
        with torch.no_grad():
            if not self.measured:
                self.model(noise)  # kernels are made and libraries loaded on the first call
            taken = peak_of(lambda: self.model(noise.clone()))
            self.measured[math.prod(window)] = _all_outputs(self.model, noise) if taken is None else taken


def _all_outputs(model: nn.Module, x: Tensor) -> int:
    """Bytes of what all layers give together."""
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
