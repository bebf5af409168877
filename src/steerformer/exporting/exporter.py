"""Write a model to a file that runs without steerformer, and compare the file with the model."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steerformer.exporting.input_grid import InputGrid, input_grid
from steerformer.exporting.onnx_files import onnx_bytes, onnx_function
from steerformer.exporting.plain import plain_module
from steerformer.exporting.torch_files import pt2_bytes, pt2_function, script_bytes, script_function
from steerformer.io.atomic import write_atomic
from steerformer.models.eval_mode import eval_mode
from steerformer.version import __version__

Function = Callable[[Tensor], Tensor]
_WRITERS: dict[str, Callable[[nn.Module, InputGrid, str], bytes]] = {
    ".onnx": onnx_bytes,
    ".pt2": pt2_bytes,
    ".pt": script_bytes,
}
_READERS: dict[str, Callable[[bytes], Function | None]] = {
    ".onnx": onnx_function,
    ".pt2": pt2_function,
    ".pt": script_function,
}


@dataclass(frozen=True)
class ExportedFile:
    """A file that :func:`export` wrote."""

    path: Path
    difference: float | None
    """Largest difference from the model's output, relative to the largest output (at least 1), over several batch
    sizes and, where the size is free, grids; ``None`` if onnxruntime, which runs ONNX files, is not installed."""
    free_size: bool
    """Whether the file takes grids of any size."""


def export(
    model: nn.Module,
    path: Path | str,
    *,
    inputs: Tensor | None = None,
    size: int | Sequence[int] | None = None,
    free_size: bool | None = None,
    metadata: Mapping[str, Any] | None = None,
    tolerance: float = 1e-4,
) -> ExportedFile:
    """Write a model in eval mode to a file that runs without steerformer, and check that the file agrees with it.

    The suffix of the file chooses the format. In all three, steerable convolutions are ordinary ones
    (:func:`plain_module`), every other layer consists of torch's operators, and the batch size is free:

    - ``.onnx``: for onnxruntime and other runtimes; needs the packages of ``pip install 'steerformer[export]'``.
    - ``.pt2``: a program of torch.export, ``torch.export.load(path).module()``.
    - ``.pt``: TorchScript, ``torch.jit.load(path)``. Of torch's formats it is the only one that keeps the modules, so
      that a steerable convolution can be found as the ``Conv2d`` that it is, and that every version of torch reads, in
      C++ as well. Torch has deprecated it in favor of ``.pt2``.

    Files compute in float32 and, for ``.pt2`` and ``.pt``, on the CPU. Attention has all pairs of voxels in memory at
    once there (``docs/guide.md``, "Export").

    The file is read back before it gets its name, and compared with the model on several batch sizes and, where the
    size is free, on odd and even grids; without onnxruntime an ONNX file is not compared.

    Args:
        model: a model of ``sf.models``, a layer, or your own module of one input tensor and one output tensor.
        path: file to write; an existing one is replaced.
        inputs: real inputs ``(batch, channels, *space)`` to compare the file with, and their grid; noise by default.
        size: voxels along each axis, if neither ``inputs`` nor the model says it.
        free_size: whether the file takes grids of any size. By default it does for U-Nets, but for those of MONAI that
            predict in windows: their file takes one window. Your own module may fix what depends on the size; then the
            comparison fails.
        metadata: stored in the file as JSON, under the key (ONNX) ``steerformer`` or in the file ``steerformer.json``.
        tolerance: largest difference allowed, relative to the largest output, or absolute below 1.

    >>> import steerformer as sf, tempfile
    >>> model = sf.models.build({"kind": "cnn", "group": "SO2", "size": 8, "widths": [[2]]})
    >>> sf.export(model, tempfile.mkdtemp() + "/net.pt").difference < 1e-5
    True
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise ValueError(f"export writes {', '.join(_WRITERS)} files, got {path.name!r}.")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} into.")
    plain = plain_module(model).cpu().float()
    grid = input_grid(model, inputs, size=size, free_size=free_size)
    described = {"steerformer": __version__, "format": 1, **describe_input(grid), **(metadata or {})}
    content = _WRITERS[path.suffix](plain, grid, json.dumps(described))
    function = _READERS[path.suffix](content)
    difference = None if function is None else _largest_difference(model, function, grid, path)
    if difference is not None and not difference <= tolerance:
        advice = "; with free_size=False its grid is fixed" if grid.free_size else ""
        raise ValueError(
            f"{path.name} would differ from the model by {difference:.1e}, more than {tolerance:.0e}, and was not "
            f"written{advice}."
        )
    write_atomic(path, content)
    return ExportedFile(path, difference, grid.free_size)


def describe_input(grid: InputGrid) -> dict[str, Any]:
    """What a file says about its input: channels, and voxels along each axis, ``None`` where any number fits."""
    space = [None] * len(grid.space) if grid.free_size else list(grid.space)
    return {"input": {"channels": grid.channels, "size": space}}


def _largest_difference(model: nn.Module, function: Function, grid: InputGrid, path: Path) -> float:
    worst = 0.0
    like = next(model.parameters(), torch.zeros(()))
    for x in grid.samples():
        with eval_mode(model):
            expected = model(x.to(like)).float().cpu()
        try:
            found = function(x)
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"{path.name} does not take inputs of shape {tuple(x.shape)}: {reason}") from error
        if found.shape != expected.shape:
            return math.inf
        worst = max(worst, float((found - expected).abs().max() / expected.abs().max().clamp_min(1)))
    return worst
