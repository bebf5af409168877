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

if TYPE_CHECKING:
    from torch import Tensor

    from steerformer.train import Run

_BATCH = 32


def predict(
    run: RunFolder,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Images or volumes.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; standard output if not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Classes of new files: a CSV table with a line for each, its class and the probability of every class.

    'steerformer predict runs/mine scans/*.nii.gz --out classes.csv' reads what training on a folder reads: PNG, JPEG
    and other images, NIfTI and .npy volumes. They are resized to what the model takes. Files that cannot be read are
    listed at the end, the others are predicted all the same; the exit code is then 2.
    """
    if out is not None and out.exists() and not force:
        fail(f"{out} exists; give another --out, or --force to write over it.")
    with one_line_errors():
        from steerformer.train import open_run

        opened = open_run(run)
        bad: list[str] = []
        text = _as_csv(opened, files, bad)
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

    config, dim = run.model.config, run.model.in_type.group.dim
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
