"""``steerformer reproduce``: pages of the documentation, computed again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steerformer.cli.console import console, fail


def reproduce(
    name: Annotated[
        str, typer.Argument(help="What to compute again: kernels, layers, attention, profiles or results.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the page and its pictures.")] = Path("docs"),
    data: Annotated[Path | None, typer.Option(help="For profiles: MNIST as an .npz file.")] = None,
    seeds: Annotated[int, typer.Option(help="For profiles: how many times to train each network.")] = 3,
    runs: Annotated[Path | None, typer.Option(help="For results: folder with run folders.")] = None,
) -> None:
    """Compute a page of the documentation again: its tables and its pictures.

    'steerformer reproduce kernels' measures how purely kernels turn and writes kernels.md with pictures: two minutes.

    'steerformer reproduce layers' measures how equivariant every layer is and writes layers.md: half a minute.

    'steerformer reproduce attention' measures how equivariant attention is and writes attention.md: one minute.

    'steerformer reproduce profiles --data mnist.npz' trains one small network with each family of kernels and writes
    profiles.md; an hour on one core. Stopped and started again, it goes on where it was. The .npz file holds
    train_images, train_labels, test_images and test_labels.

    'steerformer reproduce results --runs runs' gathers the figures of all run folders in results.json and writes
    results.md; without --runs it writes the page again from results.json.
    """
    profiles = partial(_profiles_page, data=data, seeds=seeds)
    pages: dict[str, Callable[[Path], Path]] = {
        "kernels": _kernels_page,
        "layers": _layers_page,
        "attention": _attention_page,
        "profiles": profiles,
        "results": partial(_results_page, runs=runs),
    }
    if name not in pages:
        fail(f"there is no experiment {name!r}; known: {', '.join(pages)}.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        page = pages[name](out)
    except OSError as error:
        fail(f"cannot read or write {error.filename}: {error.strerror}.")
    except ValueError as error:
        fail(str(error))
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


def _results_page(out: Path, *, runs: Path | None) -> Path:
    from steerformer.reproduce.results import collect, copy_pictures, keep
    from steerformer.reproduce.results_page import write_page

    if runs is not None:
        found = collect(runs)
        copy_pictures(runs, found, out / "images")
        keep(found, out / "results.json")
    return write_page(out)
