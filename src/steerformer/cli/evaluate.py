"""``steerformer evaluate``."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from steerformer.cli.console import console
from steerformer.cli.evaluate_cases import evaluate_cases
from steerformer.cli.runs import Changes, RunFolder, one_line_errors, open_with_data, progress_bar
from steerformer.files import write_json

if TYPE_CHECKING:
    from steerformer.audit import Evaluation
    from steerformer.data import DataConfig, Splits
    from steerformer.train import Run


def evaluate(
    run: RunFolder,
    changes: Changes = None,
    rotations: Annotated[int, typer.Option(min=1, help="Average probabilities over so many turned copies.")] = 1,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Which samples.")] = "test",
    batch_size: Annotated[int, typer.Option(min=1, help="Samples at once; segmentations go case by case.")] = 250,
    outlines: Annotated[bool, typer.Option("--outlines", help="Segmentation: no scans in the picture.")] = False,
) -> None:
    """Accuracy of a trained model, with its standard error, for each class, and who is taken for whom.

    'steerformer evaluate runs/furniture data.test_rotation=so3' tests on other data than the run did.

    '--rotations 8' shows each sample at 8 angles, 45 degrees apart (volumes: about their last axis, z). The answer is
    that of the mean of the probabilities; the mean accuracy of the single answers, which the paper gives, stands beside
    it. The figures are also written into the run folder, as evaluation-*.json.

    Of a segmentation it gives Dice and HD95, the distance that 95 % of the surface keep, for each structure, with their
    standard errors over cases, and says what was missed; evaluation-*.csv has a line for each case, evaluation-*.png
    shows the best, the median and the worst; with '--outlines' without the scans, which not everybody may see.
    'steerformer evaluate runs/lesions data.test_rotation=any' turns each case by a rotation of its own.
    """
    words = changes or []
    path = run / f"evaluation-{_tag(split, rotations, words)}.json"
    with one_line_errors():
        opened, config, splits = _open(run, words, split)
        details = {
            **{"split": split, "rotations": rotations, "changes": words, "data": config.model_dump(mode="json")},
            "classes": list(splits.classes),
        }
        if not _segments(opened):
            found, more = _evaluate(opened, config, splits, rotations, split, batch_size)
            write_json(path, {**found.as_json(), **details, **more})
        elif rotations > 1:
            raise ValueError("--rotations is for classifiers; to turn the cases of a segmentation, say "
                             "data.test_rotation=any.")  # fmt: skip
        else:
            evaluate_cases(opened, splits, path, details, scans=not outlines)
            return
    _show(found, {**details, **more}, path)


def _show(found: "Evaluation", details: dict[str, Any], path: Path) -> None:
    console.print(_classes_table(found))
    console.print(
        f"accuracy {found.accuracy:.2%} ± {found.standard_error:.2%} (one standard error) on {found.samples:,} samples",
        highlight=False,
    )
    if details["rotations"] > 1:
        console.print(
            f"probabilities averaged over {details['rotations']} rotations {details['rotated']}; single answers: "
            f"{details['mean_accuracy']:.2%} on average",
            highlight=False,
        )
    console.print(f"wrote {path}", highlight=False, soft_wrap=True, markup=False)


def _open(folder: Path, words: list[str], split: str) -> "tuple[Run, DataConfig, Splits]":
    run, config, splits = open_with_data(folder, words)
    if not len(getattr(splits, split)):
        raise ValueError(f"there are no samples in {split}; set data.validation to have some for validation.")
    return run, config, splits


def _segments(run: "Run") -> bool:
    from steerformer.train.tasks import segments

    return segments(run.config.model)


def _evaluate(
    run: "Run", config: "DataConfig", splits: "Splits", rotations: int, split: str, batch_size: int
) -> tuple["Evaluation", dict[str, Any]]:
    from steerformer.audit import averaged_probabilities, equally_spaced, interpolation, judge

    samples = getattr(splits, split)
    group = run.model.in_type.group
    mode = interpolation(config)
    with progress_bar(f"evaluating {split}", len(samples)) as advance:
        scores, labels, single = averaged_probabilities(
            run.model, samples, equally_spaced(group, rotations), mode=mode, batch_size=batch_size, progress=advance
        )
    where = "of the plane" if group.dim == 2 else "about z"
    return judge(scores, labels, splits.classes), {
        "mean_accuracy": single,
        "rotated": f"{where}, equally spaced, {mode}",
    }


def _tag(split: str, rotations: int, words: list[str]) -> str:
    """A file name that tells evaluations apart; of another folder of data, its last part."""
    parts = [split, *([f"rotations{rotations}"] if rotations > 1 else [])]
    for word in words:
        key, _, value = word.removeprefix("data.").partition("=")
        parts.append(re.sub(r"[^\w.]+", "-", f"{key}-{Path(value).name if key == 'root' else value}"))
    return "-".join(parts)


def _classes_table(found: "Evaluation") -> Table:
    table = Table("class", "samples", "accuracy", "most often taken for", title="Each class")
    names = list(found.per_class)
    for i, (name, share) in enumerate(found.per_class.items()):
        row = found.confusion[i]
        wrong = sorted(((count, j) for j, count in enumerate(row) if j != i and count), reverse=True)[:3]
        taken = ", ".join(f"{names[j]} ({count})" for count, j in wrong)
        table.add_row(name, str(sum(row)), "-" if share is None else f"{share:.1%}", taken)
    return table
