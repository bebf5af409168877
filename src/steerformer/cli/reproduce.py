"""``steerformer reproduce``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from steerformer.cli.console import console, fail, one_line_errors, say

if TYPE_CHECKING:
    from steerformer.reproduce.efficiency import Planned, Point

_KNOWN = ("results", "efficiency")


def reproduce(
    name: Annotated[str, typer.Argument(help="What to reproduce: results or efficiency.")],
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("docs"),
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder with run folders; efficiency: where they are written, runs/efficiency by default."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="efficiency: a data set, rotmnist=PATH or hippocampus=PATH; repeatable."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="efficiency: minutes of CPU time of each training.")] = 10.0,
    seeds: Annotated[int, typer.Option(min=1, help="efficiency: trainings of each network and size.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="efficiency: CPU threads.")] = 1,
    dry_run: Annotated[bool, typer.Option(help="efficiency: only list what would be trained.")] = False,
) -> None:
    """Reproduce a page of the documentation: results.md or efficiency.md.

    'steerformer reproduce results --runs runs' adds the metrics of all run
    folders to results.json first; without --runs the page is written from
    results.json alone.

    'steerformer reproduce efficiency --data rotmnist=DIR --data
    hippocampus=DIR' trains a steerable network and its plain rivals on few
    and many samples, each for the same minutes of CPU time, tests them upright
    and rotated, and writes scores against training samples. What is in
    efficiency.json with the same settings and minutes is not trained again;
    without --data the page is written from efficiency.json alone.
    """
    with one_line_errors():
        if name == "results":
            from steerformer.reproduce.results_page import reproduce_results

            say(f"wrote {reproduce_results(out, runs)}")
        elif name == "efficiency":
            _efficiency(out, runs or Path("runs/efficiency"), data or [], minutes, seeds, threads, dry_run=dry_run)
        else:
            fail(f"cannot reproduce {name!r}; known: {', '.join(_KNOWN)}.")


def _efficiency(
    out: Path, runs: Path, data: list[str], minutes: float, seeds: int, threads: int, *, dry_run: bool
) -> None:
    from steerformer.cli.training_progress import BarReporter
    from steerformer.reproduce.efficiency import measure_points, plan
    from steerformer.reproduce.efficiency_page import save_points, write_efficiency_page
    from steerformer.training import Interrupted
    from steerformer.training.allocator import keep_freed_memory

    keep_freed_memory()
    planned = plan(_roots(data), runs, seeds=seeds, threads=threads)
    path = out / "efficiency.json"
    points = save_points([], path)
    if dry_run:
        console.print(_table(planned, minutes, points))
        return
    try:
        for point in measure_points(planned, minutes=minutes, known=points, reporter=lambda: BarReporter(console)):
            points = save_points([point], path)
            scores = ", ".join(f"{test} {100 * score:.2f}%" for test, score in point.scores.items())
            say(f"{point.study}: {point.network}, {point.samples} samples: {scores}, {point.minutes:.1f} min")
    except Interrupted:
        say("stopped; the same command resumes.")
        raise typer.Exit(130) from None
    if not points:
        raise ValueError(f"{path} does not exist; measure with --data rotmnist=DIR or --data hippocampus=DIR.")
    say(f"wrote {write_efficiency_page(points, out)}")


def _roots(data: list[str]) -> dict[str, Path]:
    from steerformer.reproduce.efficiency import STUDIES

    roots = {}
    for word in data:
        name, _, path = word.partition("=")
        if name not in STUDIES or not path:
            raise ValueError(f"--data takes NAME=PATH with NAME one of {', '.join(STUDIES)}, got {word!r}.")
        roots[name] = Path(path)
    return roots


def _table(planned: "list[Planned]", minutes: float, known: "list[Point]") -> Table:
    done = [any(one.is_measured_by(point, minutes) for point in known) for one in planned]
    left = len(planned) - sum(done)
    title = f"{len(planned)} trainings of {minutes:g} minutes; {left} to do, {left * minutes / 60:.1f} hours"
    table = Table("data", "network", "samples", "seed", "state", title=title, box=SIMPLE_HEAD)
    for one, is_done in zip(planned, done, strict=True):
        table.add_row(one.study, one.network, f"{one.samples:,}", str(one.seed), "done" if is_done else "to do")
    return table
