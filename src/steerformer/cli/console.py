"""The console, its messages, and the arguments that several commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from steerformer.io.errors import describe_os_error

console = Console()
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of 'steerformer train'.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Overrides, such as data.root=DIR or data.test_rotation=so3."),
]


def say(text: str) -> None:
    """Print a line without markup, highlighting or wrapping."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """End with exit code 2 and one line on standard error."""
    Console(stderr=True).print(f"steerformer: {message}", style="red", highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(2)


@contextmanager
def one_line_errors(file: Path | str = "a file") -> Iterator[None]:
    """Report users' mistakes in one line; ``file`` is named where the system does not name one."""
    try:
        yield
    except OSError as error:
        fail(f"{describe_os_error(error, file)}.")
    except ValueError as error:
        fail(str(error))
