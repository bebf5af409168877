"""``steerformer evaluate``."""

from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from steerformer.cli.console import Overrides, RunArgument, console, one_line_errors, say


def evaluate(
    run: RunArgument,
    overrides: Overrides = None,
    rotations: Annotated[int, typer.Option(min=1, help="Average probabilities over this many rotated copies.")] = 1,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Split to evaluate.")] = "test",
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per batch; segmentations go case by case.")] = 250,
    outlines: Annotated[bool, typer.Option("--outlines", help="Segmentation: no scans in the figure.")] = False,
) -> None:
    """Evaluate a trained model on its test data: accuracy and confusions, or Dice and HD95 of each structure.

    'steerformer evaluate runs/furniture data.test_rotation=so3' tests on
    other data than the run did.

    '--rotations 8' averages the probabilities over rotations by multiples
    of 45 degrees (volumes: about their last axis, z). The mean accuracy of
    single predictions, which the paper reports, is reported as well. The
    metrics are also written into the run folder, as evaluation-*.json.

    For segmentation it reports Dice and the 95th-percentile Hausdorff
    distance (HD95) of each structure, with standard errors over cases, and
    the missed and spurious structures; evaluation-*.csv has a line for each
    case, evaluation-*.png shows the best, the median and the worst case,
    with '--outlines' without the scans, for confidential ones. 'steerformer
    evaluate runs/lesions data.test_rotation=any' rotates each case.
    """
    from steerformer import open_run
    from steerformer.cli.progress import progress_bar

    with one_line_errors():
        opened = open_run(run)
        found = opened.evaluate(
            overrides or [],
            split=split,
            rotations=rotations,
            batch_size=batch_size,
            save=True,
            scans=not outlines,
            progress=progress_bar,
            notify=say,
        )
    if opened.is_segmentation:
        console.print(_structures_table(found.metrics))
        lines = _segmentation_lines(found.metrics)
    else:
        console.print(_classes_table(found.metrics))
        lines = _classification_lines(found.metrics)
    for line in lines:
        say(line)
    say(f"wrote {', '.join(map(str, found.files))}")


def _classification_lines(metrics: dict[str, Any]) -> list[str]:
    lines = [
        f"accuracy {metrics['accuracy']:.2%} ± {metrics['standard_error']:.2%} (one standard error) on "
        f"{metrics['samples']:,} samples"
    ]
    if metrics["rotations"] > 1:
        lines.append(
            f"probabilities averaged over {metrics['rotations']} rotations {metrics['rotated']}; mean accuracy of "
            f"single predictions {metrics['mean_accuracy']:.2%}"
        )
    return lines


def _classes_table(metrics: dict[str, Any]) -> Table:
    table = Table("class", "samples", "accuracy", "most often confused with", title="Classes")
    names = list(metrics["per_class"])
    for i, (name, share) in enumerate(metrics["per_class"].items()):
        row = metrics["confusion"][i]
        wrong = sorted(((count, j) for j, count in enumerate(row) if j != i and count), reverse=True)[:3]
        confused = ", ".join(f"{names[j]} ({count})" for count, j in wrong)
        table.add_row(name, str(sum(row)), "-" if share is None else f"{share:.1%}", confused)
    return table


def _structures_table(metrics: dict[str, Any]) -> Table:
    from steerformer.metrics.statistics import with_error

    unit = metrics["unit"]
    table = Table("structure", "cases", "Dice [%]", f"HD95 \\[{unit}]", "missed", "spurious", title="Structures")
    for group in ("structures", "regions"):
        for name, scores in metrics[group].items():
            dice = with_error(scores["dice"], scores["dice_error"], scale=100)
            hd95 = with_error(scores["hd95"], scores["hd95_error"])
            counts = (str(len(scores[word])) for word in ("missed", "spurious"))
            table.add_row(name, str(scores["cases"]), dice, hd95, *counts)
        table.add_section()
    return table


def _segmentation_lines(metrics: dict[str, Any]) -> list[str]:
    """The means over cases, and the cases with missed or spurious structures."""
    from steerformer.metrics.case_scores import missed_or_spurious
    from steerformer.metrics.statistics import with_error

    dice = with_error(metrics["dice"], metrics["dice_error"], scale=100)
    hd95 = with_error(metrics["hd95"], metrics["hd95_error"])
    means = f"mean over classes and {metrics['cases']} cases (± one standard error)"
    lines = [f"Dice {dice} %, HD95 {hd95} {metrics['unit']}: {means}", *missed_or_spurious(metrics["structures"])]
    if metrics["in_windows"]:
        lines.append(f"{metrics['in_windows']} cases did not fit into the free memory and were evaluated in windows")
    return lines
