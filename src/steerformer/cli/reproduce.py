"""``steerformer reproduce``."""

from pathlib import Path
from typing import Annotated

import typer

from steerformer.cli.console import fail, one_line_errors, say


def reproduce(
    name: Annotated[str, typer.Argument(help="What to reproduce: results.")],
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("docs"),
    runs: Annotated[Path | None, typer.Option(help="Folder with run folders.")] = None,
) -> None:
    """Write results.md: results of runs beside the paper's.

    'steerformer reproduce results --runs runs' adds the metrics of all run
    folders to results.json first; without --runs the page is written from
    results.json alone.
    """
    from steerformer.reproduce.results_page import reproduce_results

    if name != "results":
        fail(f"cannot reproduce {name!r}; known: results.")
    with one_line_errors():
        say(f"wrote {reproduce_results(out, runs)}")
