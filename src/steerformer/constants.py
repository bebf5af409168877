"""Module constants that are exact in every dtype."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ExactConstants(nn.Module):
    """Module whose constants are stored in float64 and cast again whenever it changes dtype or device.

    A plain buffer created in float32 keeps its rounding errors after ``.double()``. Constants are not part of the state
    dict.
    """

    def __init__(self) -> None:
        super().__init__()
        self._exact: dict[str, Tensor] = {}

    def register_constant(self, name: str, value: Tensor) -> None:
        """Register a buffer ``name`` with this float64 value, cast to the default dtype and device."""
        assert value.dtype == torch.float64, f"constant {name} is {value.dtype}"
        self._exact[name] = value
        buffer = value.to(torch.get_default_device(), torch.get_default_dtype())
        self.register_buffer(name, buffer, persistent=False)

    def constant(self, name: str) -> Tensor:
        """A registered constant, in the module's dtype."""
        return self.get_buffer(name)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "ExactConstants":
        super()._apply(fn, recurse)
        for name, value in self._exact.items():
            buffer = self.get_buffer(name)
            if buffer.device.type != "meta":
                setattr(self, name, value.to(buffer))
        return self
