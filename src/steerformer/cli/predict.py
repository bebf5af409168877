"""``steerformer predict``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from steerformer.cli.console import RunArgument, fail, one_line_errors, say


def predict(
    run: RunArgument,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES", help="Images or volumes; NAME_0000, NAME_0001 ... are modalities of one."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the label maps; for a classifier the CSV file, standard output by default."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Segmentation: limit for the peak memory, such as 2G; default: what is free."
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Segmentation: also write the probability of every class.")
    ] = False,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Segmentation: also draw the outlines over the scan, as PNG.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Predict new files: a label map for each (segmentation), or a CSV row for each (classification).

    'steerformer predict runs/mine scans/*.nii.gz --out labels' writes
    labels/NAME.nii.gz for each scan: a label for every voxel, in the
    geometry of the scan (shape, affine, orientation, header). Images become
    PNG files: 0 and 255 for two classes, else class numbers. Scans that do
    not fit into --memory are predicted in overlapping windows.

    'steerformer predict runs/mine images/*.png --out classes.csv' by a
    classifier writes the class of each file and the probability of every
    class. Files are resized to the model's input.

    Scans with other voxels than the training cases are resampled to theirs,
    and label maps back to the scan.

    Files that cannot be read are skipped and listed at the end, with exit
    code 2.
    """
    from steerformer import open_run
    from steerformer.cli.progress import progress_bar
    from steerformer.infer.memory import parse_bytes

    with one_line_errors():
        opened = open_run(run)
        found = opened.predict_files(
            files,
            out,
            probabilities=probabilities,
            overlay=overlay,
            force=force,
            memory=parse_bytes(memory) if memory else None,
            progress=progress_bar,
            notify=say,
        )
    if opened.is_segmentation:
        count = len(found.written)
        say(f"wrote {count} label map{'s' * (count != 1)} into {out}{_peak(memory)}")
    elif out is None and found.table:
        sys.stdout.write(found.table)
    if found.errors:
        what = "scans could not be segmented" if opened.is_segmentation else "files could not be read"
        fail("; ".join([f"{len(found.errors)} of {found.count} {what}", *found.errors]).removesuffix(".") + ".")


def _peak(limit: str | None) -> str:
    """The peak memory, if a limit was set."""
    from steerformer.infer.memory import format_bytes, peak_memory

    peak = peak_memory()
    return f", peak memory {format_bytes(peak)} ({limit} allowed)" if limit and peak else ""
