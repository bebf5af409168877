"""What commands on run folders share: opening them, and saying in one line why that cannot be done."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from steerformer.cli.console import console, fail

if TYPE_CHECKING:
    from steerformer.data import DataConfig, Splits
    from steerformer.train import Run

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of 'steerformer train'.")]
Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Other data, such as data.root=DIR or data.test_rotation=so3."),
]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Users' mistakes end the command with one line."""
    try:
        yield
    except OSError as error:
        fail(f"{what_failed(error)}.")
    except ValueError as error:
        fail(str(error))


def what_failed(error: OSError, file: Path | str = "a file") -> str:
    """The file, or ``file`` if the system does not say which, and the reason."""
    return f"cannot read or write {error.filename or file}: {error.strerror or error}"


def open_with_data(
    folder: Path, changes: Sequence[str], prepare: "Callable[[DataConfig], DataConfig]" = lambda config: config
) -> "tuple[Run, DataConfig, Splits]":
    """A run, the data it is to see, and their configuration; ``prepare`` may change what ``changes`` do not."""
    from steerformer import data
    from steerformer.config import ConfigError, override, validate
    from steerformer.train import open_run
    from steerformer.train.tasks import require_fit

    run = open_run(folder)
    for word in changes:
        if not word.startswith("data."):
            raise ConfigError(f"only data.* can be changed for a model that is trained, got {word!r}.")
    values = override({"data": prepare(run.config.data).model_dump()}, changes)["data"]
    config: DataConfig = validate(data.DataConfig, values, where="data")
    splits = data.load(config)
    require_fit(run.model, splits, run.config)
    if splits.classes != run.classes and not all(name.isdigit() for name in run.classes):
        raise ConfigError(
            f"the run knows the classes {_short(run.classes)}, but the data have {_short(splits.classes)}."
        )
    return run, config, splits


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A bar on a terminal; the function it gives takes the number of steps done, 1 if not told."""
    columns: list[Any] = [TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)
