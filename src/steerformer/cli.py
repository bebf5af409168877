"""The command ``steerformer``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Networks on images and volumes that are equivariant to rotation and translation by construction.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Commands for everything that can be done without writing Python."""
    if version:
        from steerformer import __version__

        console.print(f"steerformer {__version__}")
        raise typer.Exit


@app.command()
def demo() -> None:
    """Show, in a few seconds, how well steerable kernels turn on a pixel grid.

    For each degree kernels look at smooth images and at the same images turned by 17 degrees. An exactly steerable
    kernel would give the turned response; the table says how far off the best ring, or the purest kernel, is.
    """
    from steerformer.groups import SO2
    from steerformer.kernels import FAMILIES
    from steerformer.reproduce.kernels_page import best_kernel_error

    table = Table("degree", *FAMILIES, title="Best 5x5 kernel of each degree: relative error at 17 degrees")
    for degree in range(5):
        errors = (best_kernel_error(SO2, family, degree) for family in FAMILIES)
        table.add_row(str(degree), *(f"{error:.1e}" for error in errors))
    console.print(table)
    console.print("Measured on 128 smooth images. At quarter turns all three are exact.")
    console.print("More: 'steerformer reproduce kernels', docs/kernels.md, docs/theory.md")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="What to compute again: kernels, layers, attention or profiles.")],
    out: Annotated[Path, typer.Option(help="Folder for the page and its pictures.")] = Path("docs"),
    data: Annotated[Path | None, typer.Option(help="For profiles: MNIST as an .npz file.")] = None,
    seeds: Annotated[int, typer.Option(help="For profiles: how many times to train each network.")] = 3,
) -> None:
    """Compute a page of the documentation again: its tables and its pictures.

    'steerformer reproduce kernels' measures how purely kernels turn and writes kernels.md with pictures: two minutes.

    'steerformer reproduce layers' measures how equivariant every layer is and writes layers.md: half a minute.

    'steerformer reproduce attention' measures how equivariant attention is and writes attention.md: one minute.

    'steerformer reproduce profiles --data mnist.npz' trains one small network with each family of kernels and writes
    profiles.md; an hour on one core. Stopped and started again, it goes on where it was. The .npz file holds
    train_images, train_labels, test_images and test_labels.
    """
    profiles = partial(_profiles_page, data=data, seeds=seeds)
    pages: dict[str, Callable[[Path], Path]] = {
        "kernels": _kernels_page,
        "layers": _layers_page,
        "attention": _attention_page,
        "profiles": profiles,
    }
    if name not in pages:
        fail(f"there is no experiment {name!r}; known: {', '.join(pages)}.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        page = pages[name](out)
    except OSError as error:
        fail(f"cannot read or write {error.filename}: {error.strerror}.")
    console.print(f"wrote {page}")


def _kernels_page(out: Path) -> Path:
    from steerformer.reproduce.kernels_page import write_page

    return write_page(out, progress=console.print)


def _layers_page(out: Path) -> Path:
    from steerformer.reproduce.layers_page import write_page

    return write_page(out, progress=console.print)


def _attention_page(out: Path) -> Path:
    from steerformer.reproduce.attention_page import write_page

    return write_page(out, progress=console.print)


def _profiles_page(out: Path, *, data: Path | None, seeds: int) -> Path:
    from steerformer.reproduce.profiles import run_all
    from steerformer.reproduce.profiles_page import write_page

    if data is None:
        fail(
            "profiles needs MNIST: give --data an .npz file with train_images, train_labels, test_images, test_labels."
        )
    results = out / "profiles.jsonl"
    run_all(data, results, seeds=seeds, progress=console.print)
    return write_page(results, out / "profiles.md")


def fail(message: str) -> NoReturn:
    """End with exit code 2 and one line on standard error."""
    Console(stderr=True).print(f"steerformer: {message}", style="red", highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(2)
