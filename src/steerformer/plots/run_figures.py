"""Figures in run folders: examples of an evaluation, and the check."""

from pathlib import Path

from steerformer.audit import ClassifierCheck, SegmentationCheck
from steerformer.infer.evaluation import RunEvaluation
from steerformer.plots.case_examples import case_examples
from steerformer.plots.equivariance import check_figure
from steerformer.plots.style import save_figure


def draw_examples(found: RunEvaluation, path: Path, *, scans: bool) -> tuple[Path, ...]:
    """Draw the examples of a segmentation beside the JSON file ``path``; without ``scans``, only outlines."""
    figure = path.with_suffix(".png")
    figure.unlink(missing_ok=True)  # an older figure would pass for that of this evaluation
    if not found.examples:
        return ()
    save_figure(case_examples(found.examples, classes=found.metrics["classes"], scans=scans), figure)
    return (figure,)


def draw_check(found: ClassifierCheck | SegmentationCheck, folder: Path) -> None:
    """Draw ``check.png`` into ``folder``."""
    save_figure(check_figure(found), folder / "check.png")
