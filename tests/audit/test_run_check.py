"""Checks of runs: the control must have the same test cases and classes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from audit.segmenters import Bright
from steerformer import SO2
from steerformer.audit import run_check


@pytest.mark.parametrize(
    ("names", "classes", "words"),
    [
        (["a", "b", "d"], ("none", "lesion"), "has other test cases: d where this run has c."),
        (["a", "b"], ("none", "lesion"), "has other test cases: none where this run has c."),
        (["a", "b", "c", "d"], ("none", "lesion"), "has other test cases: d where this run has none."),
        (["a", "b", "c"], ("none", "vessel"), "has the classes none, vessel, but this run none, lesion."),
    ],
)
def test_first_difference_of_a_control_is_named(unchecked, monkeypatch, names, classes, words):
    """Runs without weights or data: only the names count."""

    def run(names, classes):
        splits = SimpleNamespace(test=[SimpleNamespace(name=name) for name in names], classes=classes)
        config = SimpleNamespace(model=None, splits=splits)
        return SimpleNamespace(folder=Path("control"), config=config, model=Bright(SO2), classes=classes)

    monkeypatch.setattr(run_check, "is_segmentation", lambda config: True)
    monkeypatch.setattr(run_check, "_some_cases", lambda splits, count: splits.test)
    monkeypatch.setattr(run_check, "load_run_data", lambda run, *arguments: (None, run.config.splits))
    with pytest.raises(ValueError, match=words):
        run_check.check_run(run(["a", "b", "c"], ("none", "lesion")), control=run(names, classes))
