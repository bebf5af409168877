"""``steerformer predict``."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steerformer.cli.console import fail
from steerformer.cli.runs import RunFolder, one_line_errors, progress_bar
from steerformer.cli.segment import Wishes, segment_files

if TYPE_CHECKING:
    from torch import Tensor

    from steerformer.train import Run

_BATCH = 32


def predict(
    run: RunFolder,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Images or volumes; NAME_0000, NAME_0001 ... are modalities of one."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the label maps; of a classifier the CSV file, standard output if not given."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Segmentation: most memory to take, such as 2G; what is free if not given."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Segmentation: also write the probability of every class.")
    ] = False,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Segmentation: also draw a picture with outlines of what was found.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files that exist.")] = False,
) -> None:
    """Labels of new files: a label map for each by a model that segments, a line of a table for each by a classifier.

    'steerformer predict runs/mine scans/*.nii.gz --out labels' writes labels/NAME.nii.gz for each scan: a label for
    every voxel, in the very geometry of the scan (shape, affine, orientation, header). Images become PNG files: 0 and
    255 for two classes, else the numbers of the classes. What does not fit into --memory is predicted in windows that
    overlap.

    'steerformer predict runs/mine images/*.png --out classes.csv' by a classifier writes the class of each file and the
    probability of every class. Files are resized to what the model takes.

    Files that cannot be read are listed at the end, the others are predicted all the same; the exit code is then 2.
    """
    with one_line_errors():
        from steerformer.train import open_run
        from steerformer.train.tasks import segments

        opened = open_run(run)
        if segments(opened.config.model):
            if out is None:
                fail("a model that segments writes a file for each one it reads; give a folder by --out.")
            segment_files(opened, files, out, Wishes(probabilities, overlay, force, memory))
            return
        if memory or probabilities or overlay:
            fail("--memory, --probabilities and --overlay are for models that segment, and this one classifies.")
        _classify_files(opened, files, out, force=force)


def _classify_files(run: "Run", files: Sequence[Path], out: Path | None, *, force: bool) -> None:
    if out is not None and out.exists() and not force:
        fail(f"{out} exists; give another --out, or --force to write over it.")
    bad: list[str] = []
    text = _as_csv(run, files, bad)
    _write(text, out)
    if bad:
        fail("; ".join([f"{len(bad)} of {len(files)} files could not be read", *bad]).removesuffix(".") + ".")


def _as_csv(run: "Run", files: Sequence[Path], bad: list[str]) -> str:
    import torch

    classes = run.classes
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["file", "class", *classes])
    with progress_bar("predicting", len(files)) as advance, torch.no_grad():
        for names, x in _batches(run, files, bad):
            for name, row in zip(names, run.model(x).softmax(1).tolist(), strict=True):
                table.writerow([name, classes[row.index(max(row))], *(f"{share:.6f}" for share in row)])
            advance(len(names))
    return text.getvalue()


def _batches(run: "Run", files: Sequence[Path], bad: list[str]) -> "Iterator[tuple[list[Path], Tensor]]":
    """Files that can be read, some at a time; why the others cannot is added to ``bad``."""
    import torch

    for start in range(0, len(files), _BATCH):
        names, read = [], []
        for path in files[start : start + _BATCH]:
            try:
                read.append(_read(run, path))
                names.append(path)
            except (ValueError, OSError) as error:
                bad.append(str(error).removesuffix("."))
        if read:
            yield names, torch.stack(read)


def _read(run: "Run", path: Path) -> "Tensor":
    from steerformer.data import DataError
    from steerformer.data.files import read_file
    from steerformer.models.config import ClassifierConfig, CNNConfig

    config, dim = run.model.config, run.model.in_type.group.dim
    assert isinstance(config, ClassifierConfig | CNNConfig)
    scale = getattr(run.config.data, "scale", "none")
    x = read_file(path, size=config.size, channels=config.in_channels, scale=scale)
    if x.ndim != 1 + dim:
        kinds = {2: "images", 3: "volumes"}
        raise DataError(f"{path} is one of {kinds[x.ndim - 1]}, but the model takes {kinds[dim]}.")
    return x


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    from steerformer.files import write_whole

    write_whole(out, text)
