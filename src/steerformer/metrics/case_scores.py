"""Segmentation scores of each case, their summary over cases, and the CSV table."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from steerformer.metrics.overlap import Overlap
from steerformer.metrics.statistics import known_mean, standard_error

_NAMED = 8  # cases that are listed in a line


@dataclass(frozen=True)
class CaseScores:
    """Scores of one case."""

    name: str
    loss: float
    classes: dict[str, Overlap]
    """Each class but the background."""
    regions: dict[str, Overlap]
    """Unions of classes, where these are customary."""

    @property
    def dice(self) -> float | None:
        """Mean over the classes that exist or were predicted; ``None`` if there are none."""
        return known_mean(found.dice for found in self.classes.values())

    @property
    def hd95(self) -> float | None:
        """Mean over the classes that exist and were predicted."""
        return known_mean(found.hd95 for found in self.classes.values())


@dataclass(frozen=True)
class StructureScores:
    """Scores of one structure over all cases."""

    cases: int
    """Cases with the structure in the truth or in the prediction."""
    dice: float | None
    dice_error: float | None
    """Standard error of the mean over cases: not over trainings."""
    hd95: float | None
    """Mean over the cases that have a distance; missed and spurious structures have none."""
    hd95_error: float | None
    missed: tuple[str, ...]
    """Cases with the structure in the truth but not in the prediction. Their Dice is 0."""
    spurious: tuple[str, ...]
    """Cases with the structure in the prediction but not in the truth. Their Dice is 0."""


def mean_dice(scores: Sequence[CaseScores]) -> float:
    """Mean Dice over cases; 1 if no case has or was predicted to have a structure."""
    mean = known_mean(case.dice for case in scores)
    return 1.0 if mean is None else mean


def summarize_cases(scores: Sequence[CaseScores]) -> dict[str, Any]:
    """Means and standard errors over cases: of all classes together, of each, and of each region; ready for JSON."""
    dice, hd95 = ([getattr(case, key) for case in scores] for key in ("dice", "hd95"))
    structures = _by_structure(scores, "classes")
    return {
        "cases": len(scores),
        "dice": known_mean(dice),
        "dice_error": standard_error(dice),
        "hd95": known_mean(hd95),
        "hd95_error": standard_error(hd95),
        "missed": sum(len(structure["missed"]) for structure in structures.values()),
        "spurious": sum(len(structure["spurious"]) for structure in structures.values()),
        "structures": structures,
        "regions": _by_structure(scores, "regions"),
    }


def summarize_structure(found: Iterable[tuple[str, Overlap]]) -> StructureScores:
    """Scores of one structure, from pairs of case name and overlap."""
    pairs = list(found)
    dice, hd95 = ([getattr(overlap, key) for _, overlap in pairs] for key in ("dice", "hd95"))
    named = {word: tuple(name for name, overlap in pairs if overlap.outcome == word) for word in ("missed", "spurious")}
    counted = sum(score is not None for score in dice)
    return StructureScores(
        counted, known_mean(dice), standard_error(dice), known_mean(hd95), standard_error(hd95), **named
    )


def case_table(scores: Sequence[CaseScores]) -> str:
    """A CSV line for each case; where there is no distance, the cell says missed or spurious, or is empty.

    Columns of regions are marked, since a class may have the same name.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*scores[0].classes, *(f"region {name}" for name in scores[0].regions)] if scores else []
    writer.writerow(["case", "dice", "hd95", *(f"{name} {key}" for name in names for key in ("dice", "hd95"))])
    for case in scores:
        found = [*case.classes.values(), *case.regions.values()]
        cells = (cell for overlap in found for cell in _cells(overlap))
        writer.writerow([case.name, _number(case.dice), _number(case.hd95), *cells])
    return text.getvalue()


def missed_or_spurious(structures: dict[str, Any]) -> list[str]:
    """Lines that name the cases in which a structure was missed or spurious."""
    lines = []
    for name, scores in structures.items():
        for word in ("missed", "spurious"):
            if scores[word]:
                more = f" and {len(scores[word]) - _NAMED} more" if len(scores[word]) > _NAMED else ""
                lines.append(f"{name} {word} in {', '.join(scores[word][:_NAMED])}{more}")
    return lines


def _by_structure(scores: Sequence[CaseScores], kind: str) -> dict[str, dict[str, Any]]:
    names = list(getattr(scores[0], kind)) if scores else []
    return {
        name: asdict(summarize_structure((case.name, getattr(case, kind)[name]) for case in scores)) for name in names
    }


def _cells(overlap: Overlap) -> tuple[str, str]:
    word = overlap.outcome if overlap.outcome in ("missed", "spurious") else ""
    return _number(overlap.dice), _number(overlap.hd95) or word


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
