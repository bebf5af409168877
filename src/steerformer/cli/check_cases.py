"""``steerformer check`` of a segmentation: Dice against angle, of one run or of two."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from steerformer.cli.runs import open_with_data, progress_bar

if TYPE_CHECKING:
    from steerformer.audit import Case, Scores, SegmentationCheck, Sweep
    from steerformer.data import DataConfig, Splits
    from steerformer.models import Model
    from steerformer.train import Run

_CASES = {2: 10, 3: 3}
_STEP = {2: 30, 3: 45}
_RANDOM = 4


def check_cases(
    opened: "tuple[Run, DataConfig, Splits]",
    words: list[str],
    samples: int | None,
    angles: Sequence[float] | None,
    control: Path | None,
) -> "SegmentationCheck":
    """Turn test cases of a run that is open and, as it prepares them itself, of the control."""
    from steerformer.audit import check_segmentation, sweep_axes
    from steerformer.infer.memory import budget

    run, _, splits = opened
    group = run.model.in_type.group
    count, turns = samples or _CASES[group.dim], angles or [float(a) for a in range(0, 360, _STEP[group.dim])]
    cases = _some(splits, count)
    other = _control(control, words, count, cases, splits.classes) if control else None
    total = (len(turns) * len(sweep_axes(group)) + _RANDOM) * (2 if other else 1)
    with progress_bar("turning cases", total) as advance:
        return check_segmentation(
            run.model,
            cases,
            angles=turns,
            rotations=_RANDOM,
            control=other,
            memory=budget(),
            progress=advance,
        )


def _some(splits: "Splits", count: int) -> "list[Case]":
    from steerformer.audit import some_cases
    from steerformer.data.cases import Cases

    assert isinstance(splits.test, Cases)
    return some_cases(splits.test, count)


def _control(
    folder: Path, words: list[str], count: int, cases: "list[Case]", classes: Sequence[str]
) -> "tuple[Model, list[Case]]":
    """Another model and the cases as it sees them: the same ones, of the same classes."""
    from steerformer.audit import upright
    from steerformer.train.tasks import segments

    run, _, splits = open_with_data(folder, words, upright)
    if not segments(run.config.model):
        raise ValueError(f"{folder} classifies, but the control of a segmentation is a segmentation.")
    others = _some(splits, count)
    if splits.classes != classes:
        raise ValueError(f"{folder} has the classes {', '.join(splits.classes)}, but this run {', '.join(classes)}.")
    for theirs, ours in zip_longest(*([case.name for case in some] for some in (others, cases)), fillvalue="none"):
        if theirs != ours:
            raise ValueError(f"{folder} has other test cases: {theirs} where this run has {ours}.")
    return run.model, others


def dice_table(found: "SegmentationCheck") -> Table:
    """A line for each angle, mean over the axes, and one for random rotations."""
    title = f"Dice with the upright prediction and with the truth, {len(found.cases)} cases"
    sweeps = {"": found.sweep, **({"control ": found.control} if found.control else {})}
    names = [f"{who}{what}" for who in sweeps for what in ("upright", "truth")]
    table = Table("turned by", *names, "turning alone", title=title, box=SIMPLE_HEAD)
    for i, angle in enumerate(found.sweep.angles):
        _add(table, f"{angle:g}°", [_at(sweep, i) for sweep in sweeps.values()])
    if found.sweep.random:
        _add(table, "at random", [sweep.random for sweep in sweeps.values()])
    return table


def _at(sweep: "Sweep", place: int) -> "list[Scores]":
    return [scores[place] for scores in sweep.axes.values()]


def _add(table: Table, name: str, scores: "Sequence[Sequence[Scores]]") -> None:
    cells = [fmean(getattr(s, key) for s in some) for some in scores for key in ("agreement", "dice")]
    table.add_row(name, *(f"{cell:.3f}" for cell in (*cells, fmean(s.ceiling for s in scores[0]))))
