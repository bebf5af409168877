"""``steerformer check``."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from steerformer.cli.console import Overrides, RunArgument, console, one_line_errors, say

if TYPE_CHECKING:
    from steerformer.audit import ClassifierCheck, DiceSweep, SegmentationCheck, SweepScores

_ROUNDING = 1e-4


def check(
    run: RunArgument,
    overrides: Overrides = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of test samples; by default 500 images or 40 volumes, for segmentation 10 or 3."
        ),
    ] = None,
    angles: Annotated[str | None, typer.Option(help="Angles for accuracy or Dice, in degrees: 0,30,60.")] = None,
    control: Annotated[
        Path | None, typer.Option(metavar="RUN2", help="Segmentation: another run to compare with.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for check.json and check.png; the run folder by default.")
    ] = None,
) -> None:
    """Is a trained model equivariant? Its logits, its layers, and accuracy or Dice against the rotation angle.

    Rotations of the grid, by multiples of 90 degrees, map voxels to voxels,
    so an equivariant classifier keeps its logits up to rounding, and the
    logits of an equivariant segmentation model rotate with the voxels.
    Otherwise the verdict is fail and the exit code 1, as it must be for a
    plain CNN. A model that passes on the grid is weak or fails if its
    predictions at other angles agree with the upright ones less than
    interpolation alone explains: by over 5 or 20 percentage points.

    Other rotations are measured on test samples, which have to be
    interpolated, and layer by layer on smooth analytic scenes: the error
    after each layer, and the error that it adds by itself, with its input
    rotated as it should be, in total and for each degree beside the degree's
    share of the energy. Accuracy against angle starts from upright test
    samples, where the data set has them.

    Segmentations are rotated back and compared with those of the upright
    samples and with the true labels: Dice against angle. 'interpolation
    only' is what a perfectly equivariant model would reach. '--control
    RUN2' shows another model beside it, such as one that is not
    equivariant.
    """
    from steerformer import open_run
    from steerformer.cli.progress import progress_bar

    folder = out or run
    with one_line_errors():
        found = open_run(run).check(
            overrides or [],
            samples=samples,
            angles=_parse_angles(angles) if angles else None,
            control=open_run(control) if control else None,
            out=folder,
            progress=progress_bar,
            notify=say,
        )
    console.print(_logits_table(found))
    console.print(_layers_table(found))
    if by_degree := _degrees_table(found):
        console.print(by_degree)
    console.print(_angles_table(found))
    say(f"wrote {folder / 'check.json'} and {folder / 'check.png'}")
    verdict = found.verdict
    style = {"pass": "green", "weak": "yellow", "fail": "red"}[verdict.grade]
    console.print(verdict.describe(), style=style, highlight=False)
    if verdict.grade == "fail":
        raise typer.Exit(1)


def _parse_angles(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--angles takes degrees separated by commas, such as 0,30,60, got {text!r}.") from None


def _logits_table(found: "ClassifierCheck | SegmentationCheck") -> Table:
    table = Table("rotations", "number", "mean change", "worst", "same class", title="Logits", box=SIMPLE_HEAD)
    changes = {
        "of the grid, exact": found.grid,
        "random, interpolated": getattr(found, "arbitrary", None),
        "random, there and back": getattr(found, "interpolation", None),
    }
    for name, change in changes.items():
        if change is None:
            continue
        shares = f"{change.mean:.1e}", f"{change.worst:.1e}", f"{change.agreement:.1%}"
        table.add_row(name, str(change.rotations), *shares)
    return table


def _layers_table(found: "ClassifierCheck | SegmentationCheck") -> Table:
    title = "Relative equivariance error of each layer"
    table = Table("layer", "grid", "grid rotations", "random rotations", "added", title=title, box=SIMPLE_HEAD)
    budgets = {budget.name: budget for budget in found.layers_arbitrary}
    for error in found.layers_grid:
        budget = budgets.get(error.name)
        errors = (budget.total, budget.added) if budget else (None, None)
        cells = ["-" if value is None else f"{value:.1e}" for value in (error.total, *errors)]
        table.add_row(error.name, "x".join(map(str, error.grid)) or "-", *cells)
    return table


def _degrees_table(found: "ClassifierCheck | SegmentationCheck") -> Table | None:
    """Layers with features of several degrees that add an error."""
    shown = [budget for budget in found.layers_arbitrary if len(budget.degrees) > 1 and (budget.added or 0) > _ROUNDING]
    if not shown:
        return None
    degrees = sorted({degree for budget in shown for degree in budget.degrees})
    title = "Added error / share of the energy, by degree [%]"
    table = Table("layer", *(f"degree {degree}" for degree in degrees), title=title, box=SIMPLE_HEAD)
    for budget in shown:
        parts = [budget.degrees.get(degree) for degree in degrees]
        cells = ["-" if part is None else f"{100 * (part.added or 0):.2g} / {100 * part.energy:.0f}" for part in parts]
        table.add_row(budget.name, *cells)
    return table


def _angles_table(found: "ClassifierCheck | SegmentationCheck") -> Table:
    from steerformer.audit import SegmentationCheck

    if isinstance(found, SegmentationCheck):
        return _dice_table(found)
    table = Table("angle", *found.accuracy, title=f"Accuracy, {found.samples} samples", box=SIMPLE_HEAD)
    for i, angle in enumerate(found.angles):
        table.add_row(f"{angle:g}°", *(f"{values[i]:.1%}" for values in found.accuracy.values()))
    return table


def _dice_table(found: "SegmentationCheck") -> Table:
    """A row for each angle, mean over the axes, and one for random rotations."""
    title = f"Dice with the upright prediction and with the truth, {len(found.cases)} cases"
    sweeps = {"": found.sweep, **({"control ": found.control} if found.control else {})}
    names = [f"{who}{what}" for who in sweeps for what in ("upright", "truth")]
    table = Table("angle", *names, "interpolation only", title=title, box=SIMPLE_HEAD)
    for i, angle in enumerate(found.sweep.angles):
        _add_row(table, f"{angle:g}°", [_at_angle(sweep, i) for sweep in sweeps.values()])
    if found.sweep.random:
        _add_row(table, "random", [sweep.random for sweep in sweeps.values()])
    return table


def _at_angle(sweep: "DiceSweep", place: int) -> "list[SweepScores]":
    return [scores[place] for scores in sweep.axes.values()]


def _add_row(table: Table, name: str, scores: "Sequence[Sequence[SweepScores]]") -> None:
    cells = [fmean(getattr(s, key) for s in some) for some in scores for key in ("agreement", "dice")]
    table.add_row(name, *(f"{cell:.3f}" for cell in (*cells, fmean(s.ceiling for s in scores[0]))))
