"""Files of an evaluation or an equivariance check: metrics as JSON and CSV, with their figures."""

from pathlib import Path

from steerformer.audit import ClassifierCheck, SegmentationCheck
from steerformer.infer.evaluation import RunEvaluation
from steerformer.io.atomic import write_atomic, write_json
from steerformer.metrics.case_scores import case_table
from steerformer.plots.case_examples import case_examples
from steerformer.plots.equivariance import check_figure
from steerformer.plots.style import save_figure


def write_evaluation(found: RunEvaluation, path: Path, *, scans: bool = True) -> tuple[Path, ...]:
    """Write the metrics to the JSON file ``path``; the files that were written.

    For segmentation also a .csv with the scores of each case, and a .png of the examples, unless there are none;
    without ``scans`` it shows only outlines.
    """
    write_json(path, found.metrics)
    if not found.cases:
        return (path,)
    table, figure = path.with_suffix(".csv"), path.with_suffix(".png")
    write_atomic(table, case_table(found.cases))
    figure.unlink(missing_ok=True)  # an older figure would pass for that of this evaluation
    if not found.examples:
        return path, table
    save_figure(case_examples(found.examples, classes=found.metrics["classes"], scans=scans), figure)
    return path, table, figure


def write_check(
    found: ClassifierCheck | SegmentationCheck, folder: Path, *, control_run: str | None = None
) -> tuple[Path, ...]:
    """Write ``check.json`` and ``check.png`` into ``folder``; the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    values, figure = folder / "check.json", folder / "check.png"
    write_json(values, {**found.as_json(), **({"control_run": control_run} if control_run else {})})
    save_figure(check_figure(found), figure)
    return values, figure
