"""The page about data efficiency, written from the measured points: a figure, a table, and what it cost."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from steerformer.io.atomic import write_atomic, write_json
from steerformer.metrics.statistics import standard_error, with_error
from steerformer.plots.efficiency_curves import EfficiencyCurve, efficiency_figure
from steerformer.plots.style import save_figure
from steerformer.reproduce.efficiency import STUDIES, TESTS, Point
from steerformer.reproduce.markdown import markdown_table

_INTRODUCTION = """# Few samples

<!-- Written by `steerformer reproduce efficiency`; do not edit. -->

How many training samples does a network need, and does equivariance pay? Every network was trained for as many
passes over its samples as fit into the same minutes of CPU time (column *min*); each is tested on upright samples and
on the same samples rotated at random.
Steerable networks were trained on upright samples alone: they know rotations by construction. The plain networks were
trained either on upright samples or with a new random rotation of every sample in each epoch.
"""


def save_points(points: Sequence[Point], path: Path) -> list[Point]:
    """Add points to a JSON file; those of other trainings stay. Returns all of them."""
    known = [Point(**values) for values in json.loads(path.read_text())] if path.exists() else []
    found = {_key(point): point for point in (*known, *points)}
    if points:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, [asdict(found[key]) for key in sorted(found)])
    return list(found.values())


def write_efficiency_page(points: Sequence[Point], out: Path) -> Path:
    """Write ``efficiency.md`` and its figure."""
    curves = {
        STUDIES[study].title: {test: _curves(points, study, test) for test in TESTS}
        for study in STUDIES
        if any(point.study == study for point in points)
    }
    (out / "images").mkdir(parents=True, exist_ok=True)
    save_figure(efficiency_figure(curves), out / "images" / "efficiency.png", dpi=130)
    parts = [_INTRODUCTION, "![Scores against the number of training samples](images/efficiency.png)\n"]
    parts += [_section(points, study) for study in STUDIES if any(point.study == study for point in points)]
    path = out / "efficiency.md"
    write_atomic(path, "\n".join(parts))
    return path


def _key(point: Point) -> tuple[str, int, str, int]:
    return point.study, point.samples, point.network, point.seed


def _of(points: Sequence[Point], study: str, network: str) -> dict[int, list[Point]]:
    """Points of a network by number of samples."""
    chosen = sorted(
        (point for point in points if (point.study, point.network) == (study, network)), key=lambda point: point.samples
    )
    return {
        samples: [point for point in chosen if point.samples == samples]
        for samples in dict.fromkeys(point.samples for point in chosen)
    }


def _curves(points: Sequence[Point], study: str, test: str) -> list[EfficiencyCurve]:
    curves = []
    for network in STUDIES[study].networks:
        found = _of(points, study, network)
        means = [_mean_and_error(group, test) for group in found.values()]
        curves.append(EfficiencyCurve(network, list(found), [m for m, _ in means], [e for _, e in means]))
    return curves


def _mean_and_error(points: Sequence[Point], test: str) -> tuple[float, float]:
    """Mean over seeds; its error comes from the test samples, which seeds share, and from the seeds."""
    over_seeds = standard_error(point.scores[test] for point in points) or 0.0
    return fmean(point.scores[test] for point in points), math.hypot(
        fmean(point.errors[test] for point in points), over_seeds
    )


def _section(points: Sequence[Point], name: str) -> str:
    study = STUDIES[name]
    rows = []
    for network in study.networks:
        for samples, group in _of(points, name, network).items():
            scores = [with_error(*_mean_and_error(group, test), scale=100) for test in TESTS]
            passes, minutes = (fmean(getattr(point, key) for point in group) for key in ("passes", "planned_minutes"))
            cost = f"{passes:,.0f}", f"{minutes:g}", f"{group[0].parameters:,}"
            rows.append([network, f"{samples:,}", *scores, len(group), *cost])
    chosen = [point for point in points if point.study == name and point.network in study.networks]
    score = "Dice" if study.score == "dice" else "accuracy"
    header = ["network", "samples", *(f"{score} {test} [%]" for test in TESTS), "runs", "passes", "min", "parameters"]
    hours = sum(point.minutes for point in chosen) / 60
    words = (
        f"{chosen[0].test_samples:,} test samples. Scores are means over runs ± their standard error: over test "
        "samples and, where there are several runs, over runs, each with other training samples and initial weights. "
        f"*Passes*: over the training samples. All runs together took {hours:.1f} hours of training. Parameters are "
        "real ones."
    )
    return f"## {study.title}\n\n{words}\n\n{markdown_table(header, rows)}\n"
