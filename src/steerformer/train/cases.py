"""What was found in each case, and what that says about all of them."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from steerformer.train.overlap import Overlap

_NAMED = 8  # cases that are named in a line


@dataclass(frozen=True)
class CaseResult:
    """One case, compared with its labels."""

    name: str
    loss: float
    classes: dict[str, Overlap]
    """Each class but the background."""
    regions: dict[str, Overlap]
    """Classes taken together, where it is usual to do so."""

    @property
    def dice(self) -> float | None:
        """Mean over the classes that are there or were predicted; none if there is no such class."""
        return _mean([found.dice for found in self.classes.values()])

    @property
    def hd95(self) -> float | None:
        """Mean over the classes that are there and were predicted."""
        return _mean([found.hd95 for found in self.classes.values()])


@dataclass(frozen=True)
class Summary:
    """One structure over all cases."""

    cases: int
    """With the structure in the truth or in the prediction."""
    dice: float | None
    dice_error: float | None
    """Standard error of the mean: how far it would move with other cases, not with another training."""
    hd95: float | None
    """Mean over the cases in which there is a distance: those that are missed or invented are beside it."""
    hd95_error: float | None
    missed: tuple[str, ...]
    """Cases in whose truth it is, and of which nothing was predicted. Their Dice is 0."""
    invented: tuple[str, ...]
    """Cases in whose truth it is not, but something was predicted. Their Dice is 0."""


def mean_score(results: Sequence[CaseResult]) -> float:
    """Mean Dice over cases; 1 where there is nothing to find, and nothing was found."""
    score = _mean([result.dice for result in results])
    return 1.0 if score is None else score


def report(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Means and standard errors over cases, of all classes together, of each, and of each region; as JSON has it."""
    dice, hd95 = ([getattr(result, key) for result in results] for key in ("dice", "hd95"))
    structures = _summaries(results, "classes")
    return {
        "cases": len(results),
        "dice": _mean(dice),
        "dice_error": standard_error(dice),
        "hd95": _mean(hd95),
        "hd95_error": standard_error(hd95),
        "missed": sum(len(structure["missed"]) for structure in structures.values()),
        "invented": sum(len(structure["invented"]) for structure in structures.values()),
        "structures": structures,
        "regions": _summaries(results, "regions"),
    }


def summarize(found: Iterable[tuple[str, Overlap]]) -> Summary:
    """One structure, with the names of the cases."""
    pairs = list(found)
    dice, hd95 = ([getattr(overlap, key) for _, overlap in pairs] for key in ("dice", "hd95"))
    named = {word: tuple(name for name, overlap in pairs if overlap.outcome == word) for word in ("missed", "invented")}
    counted = sum(score is not None for score in dice)
    return Summary(counted, _mean(dice), standard_error(dice), _mean(hd95), standard_error(hd95), **named)


def table(results: Sequence[CaseResult]) -> str:
    """A line for each case, as CSV; where there is no distance the word says why: missed, invented, or nothing.

    Columns of regions say so, since a class may have the same name.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*results[0].classes, *(f"region {name}" for name in results[0].regions)] if results else []
    writer.writerow(["case", "dice", "hd95", *(f"{name} {key}" for name in names for key in ("dice", "hd95"))])
    for result in results:
        found = [*result.classes.values(), *result.regions.values()]
        cells = (cell for overlap in found for cell in _cells(overlap))
        writer.writerow([result.name, _number(result.dice), _number(result.hd95), *cells])
    return text.getvalue()


def standard_error(values: Iterable[float | None]) -> float | None:
    r"""$s / \sqrt{n}$ of those that are numbers; none of fewer than two.

    >>> standard_error([1.0, None, 3.0])
    1.0
    """
    known = [value for value in values if value is not None]
    return stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None


def with_error(value: float | None, error: float | None, *, scale: int = 1) -> str:
    """A mean and its standard error in words.

    >>> with_error(0.875, 0.0123, scale=100)
    '87.50 ± 1.23'
    """
    if value is None:
        return "-"
    return f"{scale * value:.2f}" if error is None else f"{scale * value:.2f} ± {scale * error:.2f}"


def what_is_wrong(structures: dict[str, Any]) -> list[str]:
    """Which structures were missed or invented altogether, and in which cases."""
    lines = []
    for name, figures in structures.items():
        for word in ("missed", "invented"):
            if figures[word]:
                more = f" and {len(figures[word]) - _NAMED} more" if len(figures[word]) > _NAMED else ""
                lines.append(f"{name} {word} altogether in {', '.join(figures[word][:_NAMED])}{more}")
    return lines


def _summaries(results: Sequence[CaseResult], kind: str) -> dict[str, dict[str, Any]]:
    names = list(getattr(results[0], kind)) if results else []
    return {name: asdict(summarize((result.name, getattr(result, kind)[name]) for result in results)) for name in names}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _cells(overlap: Overlap) -> tuple[str, str]:
    word = overlap.outcome if overlap.outcome in ("missed", "invented") else ""
    return _number(overlap.dice), _number(overlap.hd95) or word


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
