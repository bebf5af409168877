"""``steerformer evaluate`` of a segmentation: each structure, over whole cases."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from steerformer.cli.console import console
from steerformer.cli.runs import progress_bar
from steerformer.files import write_json, write_whole

if TYPE_CHECKING:
    from torch import Tensor, nn

    from steerformer.data import Cases, Splits
    from steerformer.train import Run
    from steerformer.train.cases import CaseResult
    from steerformer.train.segmentation import Predict


def evaluate_cases(run: "Run", splits: "Splits", path: Path, details: dict[str, Any], *, scans: bool) -> None:
    """Judge the cases of a split, write figures beside ``path`` as JSON and CSV, and show them.

    In the picture of good and bad cases the outlines lie on the scans, if ``scans``.
    """
    from steerformer.train.cases import report, table
    from steerformer.train.segmentation import judge_cases

    cases, split, predict = getattr(splits, details["split"]).whole(), details["split"], _WithinMemory(run)
    with progress_bar(f"evaluating {split}", len(cases)) as advance:
        results = judge_cases(
            run.model,
            cases,
            range(len(cases)),
            classes=splits.classes,
            predict=predict,
            watch=lambda number, labels, result: advance(),
        )
    unit = "mm" if run.model.in_type.group.dim == 3 else "pixels"
    found = {**report(results), "unit": unit, "in_windows": predict.in_windows, **details}
    files = path, path.with_suffix(".csv"), path.with_suffix(".png")
    write_json(files[0], found)
    write_whole(files[1], table(results))
    _write_picture(run, splits.classes, cases, results, files[2], predict, scans=scans)
    console.print(_structures_table(found))
    for line in _lines(found):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    written = ", ".join(str(file) for file in files if file.exists())
    console.print(f"wrote {written}", highlight=False, soft_wrap=True, markup=False)


class _WithinMemory:
    """Logits of whole cases, in windows where these do not fit into what is free."""

    def __init__(self, run: "Run") -> None:
        from steerformer.infer import Appetite
        from steerformer.infer.memory import budget

        self.appetite, self.memory = Appetite(run.model), budget()
        self.in_windows = 0
        """Cases that did not fit."""

    def __call__(self, model: "nn.Module", x: "Tensor") -> "Tensor":
        from steerformer.infer import predict_logits

        shares: list[float] = []
        logits = predict_logits(model, x, memory=self.memory, appetite=self.appetite, progress=shares.append)
        self.in_windows += len(shares) > 1
        return logits


def _write_picture(
    run: "Run",
    classes: tuple[str, ...],
    cases: "Cases",
    results: "list[CaseResult]",
    path: Path,
    predict: "Predict",
    *,
    scans: bool,
) -> None:
    """The best, the median and the worst case; they are predicted again, since nobody can keep all label maps.

    Where no case has a structure there is no picture, nor an older one that would pass for it.
    """
    from steerformer import plots
    from steerformer.infer.examples import Example, best_median_worst, examples_picture
    from steerformer.train.segmentation import judge_cases

    examples: list[Example] = []

    def add(number: int, predicted: "Tensor", result: "CaseResult") -> None:
        word = next(word for word, chosen in numbers.items() if chosen == number)
        title = f"{word}: {result.name}\nDice {100 * (result.dice or 0):.1f} %"
        x, truth = cases[number]
        examples.append(Example(title, x, truth, predicted, tuple(cases.spacing(number))))

    numbers = best_median_worst([result.dice for result in results])
    judge_cases(run.model, cases, numbers.values(), classes=classes, distances=False, predict=predict, watch=add)
    path.unlink(missing_ok=True)
    if examples:
        plots.save(examples_picture(examples, classes=classes, scans=scans), path)


def _structures_table(found: dict[str, Any]) -> Table:
    from steerformer.train.cases import with_error

    table = Table(
        "structure", "cases", "Dice, %", f"HD95, {found['unit']}", "missed", "invented", title="Each structure"
    )
    for group in ("structures", "regions"):
        for name, figures in found[group].items():
            dice = with_error(figures["dice"], figures["dice_error"], scale=100)
            hd95 = with_error(figures["hd95"], figures["hd95_error"])
            counts = (str(len(figures[word])) for word in ("missed", "invented"))
            table.add_row(name, str(figures["cases"]), dice, hd95, *counts)
        table.add_section()
    return table


def _lines(found: dict[str, Any]) -> list[str]:
    """What all cases say, and which of them have something missed or invented."""
    from steerformer.train.cases import what_is_wrong, with_error

    dice = with_error(found["dice"], found["dice_error"], scale=100)
    hd95 = with_error(found["hd95"], found["hd95_error"])
    means = f"mean over classes and {found['cases']} cases (± one standard error)"
    lines = [f"Dice {dice} %, HD95 {hd95} {found['unit']}: {means}", *what_is_wrong(found["structures"])]
    if found["in_windows"]:
        lines.append(f"{found['in_windows']} cases were too large for the free memory, and judged in windows")
    return lines
