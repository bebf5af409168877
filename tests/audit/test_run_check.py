"""Checks of runs: options, files, and a control, which must have the same test cases and classes."""

import json
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
    monkeypatch.setattr(run_check, "_some_cases", lambda model, splits, count: splits.test)
    monkeypatch.setattr(run_check, "load_run_data", lambda run, *arguments: (None, run.config.splits))
    with pytest.raises(ValueError, match=words):
        run_check.check_run(run(["a", "b", "c"], ("none", "lesion")), control=run(names, classes))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"samples": 0}, "samples must be at least 1, got 0"), ({"angles": []}, "angles is empty; give at least one")],
)
def test_options_are_checked_before_data_are_loaded(unchecked, options, words):
    with pytest.raises(ValueError, match=words):
        run_check.check_run(SimpleNamespace(), **options)


def test_check_is_saved_with_the_name_of_the_control(unchecked, tmp_path):
    found = SimpleNamespace(as_json=lambda: {"samples": 3})
    path = run_check.save_check(found, tmp_path / "new", "other")
    assert path == tmp_path / "new" / "check.json"
    assert json.loads(path.read_text()) == {"samples": 3, "control_run": "other"}
    assert json.loads(run_check.save_check(found, tmp_path).read_text()) == {"samples": 3}
