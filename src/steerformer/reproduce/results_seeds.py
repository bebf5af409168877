"""Several seeds in ``docs/results.md``: means and standard deviations over runs that differ in the seed only."""

import json
from collections.abc import Iterator
from statistics import fmean, stdev

from steerformer.reproduce.markdown import markdown_table
from steerformer.reproduce.results import Record, classification_tests
from steerformer.reproduce.results_segmentation import is_segmentation_record, segmentation_tests

ROTATION_WORDS = {"any": "rotated in 2D", "upright": "upright", "z": "rotated about z", "so3": "rotated in 3D"}


def seeds_section(records: dict[str, Record]) -> str:
    """A table of the runs that were repeated with other seeds; empty if there are none."""
    rows = []
    for names in _repeated(records):
        scores: dict[str, list[float]] = {}
        for name in names:
            for tested, score in _scores(records[name]):
                scores.setdefault(tested, []).append(100 * score)
        for tested, values in scores.items():
            if len(values) > 1:
                word = "Dice" if is_segmentation_record(records[names[0]]) else "accuracy"
                mean = f"{fmean(values):.2f} ± {stdev(values):.2f}"
                rows.append([f"[{names[0]}](#{names[0]})", word, tested, len(values), mean, _listed(values)])
    if not rows:
        return ""
    table = markdown_table(["run", "score", "test samples", "seeds", "mean ± standard deviation [%]", "all [%]"], rows)
    return f"## Several seeds\n\n{_NOTE}\n\n{table}"


def _repeated(records: dict[str, Record]) -> list[list[str]]:
    """Names of runs that differ in the seed only, the lowest seed first."""
    groups: dict[str, list[str]] = {}
    for name, record in sorted(records.items(), key=lambda item: item[1]["config"]["seed"]):
        config = {**record["config"], "seed": None, "data": {**record["config"]["data"], "root": None}}
        groups.setdefault(json.dumps(config, sort_keys=True), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _scores(record: Record) -> Iterator[tuple[str, float]]:
    if is_segmentation_record(record):
        for tested, found in segmentation_tests(record):
            yield tested, found["dice"]
        return
    for rotation, rotations, found in classification_tests(record):
        if rotations == 1 and not found.get("grid"):
            yield ROTATION_WORDS[rotation], found["accuracy"]


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


_NOTE = (
    "Runs that differ in the seed only, which draws initial weights, the order of samples and dropout; training and "
    "test samples are the same."
)
