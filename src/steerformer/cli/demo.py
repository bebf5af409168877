"""``steerformer demo``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from steerformer.cli.console import console
from steerformer.cli.runs import one_line_errors

if TYPE_CHECKING:
    from steerformer.reproduce.demo import Measured
    from steerformer.train import Reporter


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the trained networks and the report.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="One epoch of few digits: that it works, no more.")] = False,
) -> None:
    """Train four small networks on turned digits, and see in a report why equivariance pays: under six minutes.

    Two are steerable, a transformer and one of convolutions alone; two are ordinary CNNs, of which one never sees a
    turned digit while it learns. The digits come with the program, nothing is downloaded. The report is one file,
    demo/report.html. Stopped and started again, the demonstration goes on where it was.
    """
    from steerformer.reproduce.demo import run_demo
    from steerformer.reproduce.demo_page import write_report
    from steerformer.train import Interrupted
    from steerformer.train.memory import keep_freed_memory

    keep_freed_memory()
    console.print("Four small networks learn to read digits that lie at any angle. Ctrl-C stops; later runs go on.")
    bars = _bars()
    with one_line_errors():
        out.mkdir(parents=True, exist_ok=True)
        try:
            with bars:
                found = run_demo(out, quick=quick, reporter=lambda name: _reporter(bars, name))
        except Interrupted:
            console.print("stopped; the same command goes on from here.")
            raise typer.Exit(130) from None
        report = write_report(found, out / "report.html", quick=quick)
    console.print(_table(found))
    console.print(
        f"Single runs on few digits. The report, with pictures: {report}", highlight=False, soft_wrap=True, markup=False
    )


def _table(found: "list[Measured]") -> Table:
    title = f"Digits at any angle: {found[0].samples['test']:,} to test on"
    caption = (
        "plain CNN, upright: trained on upright digits only. Last columns: change of the logits when the input turns."
    )
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("network", no_wrap=True)
    for name in ("accuracy", "parameters", "ms/batch", "by 90°", "any angle"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        accuracy = f"{row.test_accuracy:.1%} ± {row.standard_error:.1%}"
        errors = f"{row.quarter_turns:.0e}", f"{row.any_angle:.1%}"
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
    from steerformer.train import Reporter

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
