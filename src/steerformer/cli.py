"""The command ``steerformer``."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Networks on images and volumes that are equivariant to rotation and translation by construction.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


@app.callback()
def main() -> None:
    """Commands for everything that can be done without writing Python."""


@app.command()
def demo() -> None:
    """Show, in half a minute, how well steerable kernels turn on a pixel grid.

    For each degree one kernel is convolved with smooth images and with the same images turned by 17 degrees. An exactly
    steerable kernel would give the turned response; the table says how far off each family is.
    """
    from steerformer.groups import SO2
    from steerformer.kernels import FAMILIES, VoxelKernels
    from steerformer.reproduce.kernels import single_kernel_errors, usual_rotations

    table = Table("degree", *FAMILIES, title="Best 5x5 kernel of each degree: relative error at 17 degrees")
    for degree in range(5):
        kernels = (VoxelKernels(SO2, (5, 5), family=family, tolerance=1.0) for family in FAMILIES)
        errors = (single_kernel_errors(family, degree, usual_rotations(SO2)) for family in kernels)
        table.add_row(str(degree), *(f"{min(kernel.error for kernel in found):.1e}" for found in errors))
    console.print(table)
    console.print("Measured on 128 smooth images. At quarter turns all three are exact.")
    console.print("More: 'steerformer reproduce kernels', docs/kernels.md, docs/theory.md")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="What to compute again. Known: kernels.")],
    out: Annotated[Path, typer.Option(help="Folder for the page and its pictures.")] = Path("docs"),
) -> None:
    """Compute a page of the documentation again: its tables and its pictures.

    'steerformer reproduce kernels' measures how purely kernels turn, and writes kernels.md with pictures.
    """
    if name != "kernels":
        fail(f"there is no experiment {name!r}; known: kernels.")
    from steerformer.reproduce.kernels_page import write_page

    try:
        page = write_page(out, progress=console.print)
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror}; choose another folder with --out.")
    console.print(f"wrote {page}")


def fail(message: str) -> NoReturn:
    """End with exit code 2 and one line on standard error."""
    Console(stderr=True).print(f"steerformer: {message}", style="red", highlight=False, soft_wrap=True)
    raise typer.Exit(2)
