"""Scores of cases, their summary, and the CSV table."""

import csv

import pytest

from steerformer.metrics.case_scores import CaseScores, case_table, mean_dice, missed_or_spurious, summarize_cases
from steerformer.metrics.overlap import Overlap

SCORES = [
    CaseScores("p1", 0.0, {"a": Overlap("found", 0.8, 2.0), "b": Overlap("found", 0.6, 4.0)}, {}),
    CaseScores("p2", 0.0, {"a": Overlap("found", 0.6, 3.0), "b": Overlap("missed", 0.0, None)}, {}),
    CaseScores("p3", 0.0, {"a": Overlap("spurious", 0.0, None), "b": Overlap("absent", None, None)}, {}),
    CaseScores("p4", 0.0, {"a": Overlap("absent", None, None), "b": Overlap("absent", None, None)}, {}),
]


def test_missed_and_spurious_structures_count_and_are_named():
    found = summarize_cases(SCORES)
    assert found["cases"] == 4 and found["dice"] == pytest.approx((0.7 + 0.3 + 0.0) / 3)
    assert found["hd95"] == pytest.approx((3.0 + 3.0) / 2)
    assert (found["missed"], found["spurious"]) == (1, 1)
    a, b = found["structures"]["a"], found["structures"]["b"]
    assert (a["cases"], a["spurious"], a["missed"]) == (3, ("p3",), ())
    assert (b["cases"], b["spurious"], b["missed"]) == (2, (), ("p2",))
    assert a["dice"] == pytest.approx(1.4 / 3) and b["dice"] == pytest.approx(0.3)
    assert a["hd95"] == pytest.approx(2.5) and b["hd95"] == 4.0 and b["hd95_error"] is None


def test_mean_dice_leaves_out_cases_without_structures():
    assert mean_dice(SCORES) == pytest.approx(1 / 3)
    assert mean_dice(SCORES[3:]) == 1.0


def test_table_has_a_line_per_case():
    """Cells without a distance say why."""
    rows = list(csv.DictReader(case_table(SCORES).splitlines()))
    assert [row["case"] for row in rows] == ["p1", "p2", "p3", "p4"]
    assert [row["a dice"] for row in rows] == ["0.8", "0.6", "0", ""]
    assert [row["a hd95"] for row in rows] == ["2", "3", "spurious", ""]
    assert [row["b hd95"] for row in rows] == ["4", "missed", "", ""]
    assert [row["dice"] for row in rows] == ["0.7", "0.3", "0", ""]


def test_class_and_region_of_one_name_have_separate_columns():
    classes, joined = ({"core": Overlap("found", dice, 1.0)} for dice in (0.25, 0.75))
    (row,) = csv.DictReader(case_table([CaseScores("p1", 0.0, classes, joined)]).splitlines())
    assert (row["dice"], row["core dice"], row["region core dice"]) == ("0.25", "0.25", "0.75")


def test_missed_or_spurious_names_at_most_eight_cases():
    names = tuple(f"p{number}" for number in range(10))
    structures = {"a": {"missed": names, "spurious": ()}, "b": {"missed": (), "spurious": ("p3",)}}
    assert missed_or_spurious(structures) == [
        "a missed in p0, p1, p2, p3, p4, p5, p6, p7 and 2 more",
        "b spurious in p3",
    ]
