"""Module constants that are exact in every dtype."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ExactConstants(nn.Module):
    """Module whose constants are stored in float64 and cast again whenever it changes dtype or device.

    A plain buffer created in float32 keeps its rounding errors after ``.double()``. Constants are not part of the state
    dict. In a module built on the meta device they get their values when first needed.
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

    def constant(self, name: str, like: Tensor) -> Tensor:
        """A registered constant, in the module's dtype; if it is still on the meta device, created as ``like`` is."""
        buffer = self.get_buffer(name)
        return self._materialize(name, like) if buffer.is_meta and like.device.type != "meta" else buffer

    def _materialize(self, name: str, like: Tensor) -> Tensor:
        device, dtype = like.device, like.dtype
        if torch.is_autocast_enabled(device.type):  # ``like`` may be in half precision for this call only
            dtype = self.get_buffer(name).dtype
        if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
            return self._exact[name].to(device, dtype)  # not kept: it belongs to the graph or the transform
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with torch.inference_mode(False), unset_fake_temporarily():  # kept for later calls in other modes
            value = self._exact[name].to(device, dtype)
        setattr(self, name, value)
        return value

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "ExactConstants":
        exact_of = {id(self.get_buffer(name)): value for name, value in self._exact.items()}

        def convert(tensor: Tensor) -> Any:
            try:
                return fn(tensor)
            except NotImplementedError:  # moved away from the meta device, where only constants have values elsewhere
                if id(tensor) not in exact_of:
                    raise
                return fn(exact_of[id(tensor)].to(tensor.dtype))

        super()._apply(convert, recurse)
        for name, value in self._exact.items():
            buffer = self.get_buffer(name)
            if buffer.device.type != "meta":
                setattr(self, name, value.to(buffer))
        return self
