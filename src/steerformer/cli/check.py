"""``steerformer check``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from steerformer.cli.check_cases import check_cases, dice_table
from steerformer.cli.console import console
from steerformer.cli.runs import Changes, RunFolder, one_line_errors, open_with_data, progress_bar

if TYPE_CHECKING:
    from steerformer.audit import Check, SegmentationCheck

_SAMPLES = {2: 500, 3: 40}
_STEP = {2: 15, 3: 45}


def check(
    run: RunFolder,
    changes: Changes = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Test samples to turn; 500 images or 40 volumes, of segmentations 10 or 3."),
    ] = None,
    angles: Annotated[str | None, typer.Option(help="Angles for accuracy or Dice, in degrees: 0,30,60.")] = None,
    control: Annotated[
        Path | None, typer.Option(metavar="RUN2", help="Segmentation: another run, to stand beside this one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for check.json and check.png; the run folder.")] = None,
) -> None:
    """Is a trained model equivariant? Its logits, its layers, and its accuracy or Dice when the input turns.

    Rotations of the grid (quarter turns) move voxels onto voxels, so there the logits of an equivariant model stay the
    same up to rounding, or, if each voxel has its own, move with the voxels. If they do not, the command says so and
    ends with code 1: a plain CNN must fail here.

    Other rotations are judged on test samples, which have to be interpolated, and layer by layer on smooth scenes that
    are turned as formulas. Accuracy against angle starts from upright test samples, where the data set has them.

    Segmentations are turned back, and compared with those of the upright samples and with the truth: Dice against
    angle. 'turning alone' is what interpolation costs, were the model perfect. '--control RUN2' shows another model
    beside, such as one that is not equivariant.
    """
    with one_line_errors():
        found, folder = _check(run, changes or [], samples, angles, control), out or run
        folder.mkdir(parents=True, exist_ok=True)
        _write(found, folder, {"control_run": control.resolve().name} if control else {})
    console.print(_logits_table(found))
    console.print(_layers_table(found))
    console.print(_turned_table(found))
    console.print(
        f"wrote {folder / 'check.json'} and {folder / 'check.png'}", highlight=False, soft_wrap=True, markup=False
    )
    if not found.is_equivariant:
        console.print(
            f"NOT equivariant: a rotation of the grid changes the logits by {found.grid.worst:.1%} "
            f"and {1 - found.grid.agreement:.1%} of the predictions.",
            style="red",
            highlight=False,
        )
        raise typer.Exit(1)
    console.print(f"equivariant: rotations of the grid change the logits by {found.grid.worst:.1e}, which is rounding.")


def _check(
    folder: Path, words: list[str], samples: int | None, angles: str | None, control: Path | None
) -> "Check | SegmentationCheck":
    from steerformer.audit import check_model, interpolation, some_samples, sweep_axes, upright
    from steerformer.train.tasks import segments

    opened = open_with_data(folder, words, upright)
    run, config, splits = opened
    chosen = _angles(angles) if angles else None
    if segments(run.config.model):
        return check_cases(opened, words, samples, chosen, control)
    if control:
        raise ValueError(
            "--control is for models that segment, and this one classifies; check the other one by itself."
        )
    group = run.model.in_type.group
    turns = chosen or [float(angle) for angle in range(0, 361, _STEP[group.dim])]
    x, labels = some_samples(splits.test, samples or _SAMPLES[group.dim])
    with progress_bar("turning samples", len(turns) * len(sweep_axes(group))) as advance:
        return check_model(run.model, x, labels, angles=turns, mode=interpolation(config), progress=advance)


def _angles(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--angles takes degrees with commas between, such as 0,30,60, got {text!r}.") from None


def _write(found: "Check | SegmentationCheck", folder: Path, more: dict[str, str]) -> None:
    from steerformer import plots
    from steerformer.files import write_json

    write_json(folder / "check.json", {**found.as_json(), **more})
    plots.save(plots.check(found), folder / "check.png")


def _logits_table(found: "Check | SegmentationCheck") -> Table:
    table = Table("rotations", "number", "mean change", "worst", "same class", title="Logits", box=SIMPLE_HEAD)
    changes = {"of the grid, exact": found.grid, "random, interpolated": getattr(found, "arbitrary", None)}
    for name, change in changes.items():
        if change is None:
            continue
        shares = f"{change.mean:.1e}", f"{change.worst:.1e}", f"{change.agreement:.1%}"
        table.add_row(name, str(change.rotations), *shares)
    return table


def _layers_table(found: "Check | SegmentationCheck") -> Table:
    table = Table(
        "layer", "grid", "grid turns", "any rotation", "compared", title="Error of each layer", box=SIMPLE_HEAD
    )
    smooth = {error.name: error for error in found.layers_arbitrary}
    for error in found.layers_grid:
        other = smooth.get(error.name)
        far = (f"{other.total:.1e}", other.compared) if other else ("-", "-")
        size = "x".join(map(str, error.grid)) or "-"
        table.add_row(error.name, size, f"{error.total:.1e}", *far)
    return table


def _turned_table(found: "Check | SegmentationCheck") -> Table:
    from steerformer.audit import SegmentationCheck

    if isinstance(found, SegmentationCheck):
        return dice_table(found)
    table = Table("turned by", *found.accuracy, title=f"Accuracy, {found.samples} samples", box=SIMPLE_HEAD)
    for i, angle in enumerate(found.angles):
        table.add_row(f"{angle:g}°", *(f"{values[i]:.1%}" for values in found.accuracy.values()))
    return table
