"""Files of torch: programs of torch.export, and TorchScript."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from steerformer.exporting.input_grid import InputGrid

DESCRIPTION = "steerformer.json"
"""Name of the extra file with the description."""


def exported_program(plain: nn.Module, grid: InputGrid) -> ExportedProgram:
    """The model as a program of torch.export, with a free batch size and, if asked for, a free grid."""
    axes = [0, *(range(2, 2 + len(grid.space)) if grid.free_size else ())]
    with torch.no_grad(), without_torch_warnings():
        return torch.export.export(plain, (grid.example(),), dynamic_shapes=({axis: Dim.DYNAMIC for axis in axes},))


def pt2_bytes(plain: nn.Module, grid: InputGrid, description: str) -> bytes:
    """The model as a .pt2 file of torch.export."""
    file = io.BytesIO()
    with without_torch_warnings():
        torch.export.save(exported_program(plain, grid), file, extra_files={DESCRIPTION: description})
    return file.getvalue()


def pt2_function(content: bytes) -> Callable[[Tensor], Tensor]:
    """The function of a .pt2 file."""
    with without_torch_warnings():
        program = torch.export.load(io.BytesIO(content)).module()
    return _without_gradients(program)


def script_bytes(plain: nn.Module, grid: InputGrid, description: str) -> bytes:
    """The model as TorchScript."""
    file = io.BytesIO()
    with torch.no_grad(), without_torch_warnings():
        traced = torch.jit.trace(plain, (grid.example(),), check_trace=False)
        torch.jit.save(traced, file, _extra_files={DESCRIPTION: description})
    return file.getvalue()


def script_function(content: bytes) -> Callable[[Tensor], Tensor]:
    """The function of a TorchScript file."""
    with without_torch_warnings():
        return _without_gradients(torch.jit.load(io.BytesIO(content)))


def _without_gradients(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return function(x)

    return run


@contextmanager
def without_torch_warnings() -> Iterator[None]:
    """Silence what torch warns of in its own exporters: deprecations, and branches, which the comparison tests."""
    of_tracer: type[Warning] = torch.jit.TracerWarning  # type: ignore[attr-defined, unused-ignore]
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, UserWarning, of_tracer):
            warnings.simplefilter("ignore", category)
        yield
