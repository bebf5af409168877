"""``steerformer export``."""

from pathlib import Path
from typing import Annotated

import typer

from steerformer.cli.console import RunArgument, console, one_line_errors, say


def export(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write, .onnx, .pt2 or .pt; RUN/model.onnx by default.")
    ] = None,
    fixed_size: Annotated[
        bool, typer.Option("--fixed-size", help="Segmentation: fix the grid of the input, to that of the patches.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write a trained model to a file that runs without steerformer: ONNX, torch.export or TorchScript.

    'steerformer export runs/mine --out net.onnx' writes the best weights.
    The batch size is free and, of U-Nets, the grid as well. The file is
    compared with the model before it is written.

    The file also holds, as JSON, the names of the classes, the
    preprocessing, the voxel spacing, the patch size and the version:
    examples/run_onnx.py reads them and runs the file with numpy and
    onnxruntime alone. ONNX files need the packages of
    pip install 'steerformer[export]'.

    Suffixes: .onnx for onnxruntime, .pt2 for torch.export.load, .pt for
    torch.jit.load.
    """
    from steerformer import open_run

    with one_line_errors(out or run), console.status("exporting and comparing"):
        found = open_run(run).export(out, free_size=False if fixed_size else None, force=force)
    size = found.path.stat().st_size / 2**20
    say(f"wrote {found.path}, {size:.1f} MB, {_agreement(found.difference)}")


def _agreement(difference: float | None) -> str:
    if difference is None:
        return "not compared with the model: onnxruntime is not installed (pip install 'steerformer[export]')"
    return f"agrees with the model within {difference:.0e}"
