"""ONNX files: conversion by torch's exporter, and running them in onnxruntime."""

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from steerformer.exporting.input_grid import InputGrid
from steerformer.exporting.torch_files import exported_program, without_torch_warnings

KEY = "steerformer"
"""Key of the description, as JSON, in the metadata of a file."""
_AXES = {2: ("height", "width"), 3: ("axis0", "axis1", "axis2")}


def onnx_bytes(plain: nn.Module, grid: InputGrid, description: str) -> bytes:
    """The model as an ONNX file, with one input ``x`` and one output ``y``."""
    for name in ("onnx", "onnxscript"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise ValueError(f"ONNX files need the package {name}: pip install 'steerformer[export]'.") from None
    program = exported_program(plain, grid)
    with without_torch_warnings(), _quiet_exporter():
        converted = torch.onnx.export(program, dynamo=True, verbose=False, input_names=["x"], output_names=["y"])
    assert converted is not None
    _name_axes(converted.model.graph, grid)
    converted.model.metadata_props[KEY] = description
    content: bytes = converted.model_proto.SerializeToString()
    return content


def onnx_function(content: bytes) -> Callable[[Tensor], Tensor] | None:
    """The file's function in onnxruntime; ``None`` if this is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])

    return run


def _name_axes(graph: Any, grid: InputGrid) -> None:
    """Name the free axes of input and output, which runtimes show."""
    import onnx_ir

    names = ["batch", grid.channels, *(_AXES[len(grid.space)] if grid.free_size else grid.space)]
    known = {str(before): name for before, name in zip(graph.inputs[0].shape, names, strict=True)}
    for value in (graph.inputs[0], graph.outputs[0]):
        value.shape = onnx_ir.Shape([n if isinstance(n, int) else known.get(str(n), str(n)) for n in value.shape])


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """No lines about torchvision and about constants that were not folded."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
