"""Which controls fit a segmentation."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from steerformer import SO2
from steerformer.cli import check_cases as command


@pytest.mark.parametrize(
    ("names", "classes", "words"),
    [
        (["a", "b", "d"], ("none", "lesion"), "has other test cases: d where this run has c."),
        (["a", "b"], ("none", "lesion"), "has other test cases: none where this run has c."),
        (["a", "b", "c", "d"], ("none", "lesion"), "has other test cases: d where this run has none."),
        (["a", "b", "c"], ("none", "vessel"), "has the classes none, vessel, but this run none, lesion."),
    ],
)
def test_the_first_difference_of_a_control_is_named(monkeypatch, names, classes, words):
    """Both runs without weights and data: only names count."""

    def opened(names, classes):
        model = SimpleNamespace(in_type=SimpleNamespace(group=SO2))
        run = SimpleNamespace(model=model, classes=classes, config=SimpleNamespace(model=None))
        return run, None, SimpleNamespace(test=[SimpleNamespace(name=name) for name in names], classes=classes)

    monkeypatch.setattr("steerformer.train.tasks.segments", lambda config: True)
    monkeypatch.setattr("steerformer.audit.check_segmentation", lambda *arguments, **options: None)
    monkeypatch.setattr(command, "_some", lambda splits, count: splits.test)
    monkeypatch.setattr(command, "open_with_data", lambda *arguments: opened(names, classes))
    ours = opened(["a", "b", "c"], ("none", "lesion"))
    with pytest.raises(ValueError, match=words):
        command.check_cases(ours, [], 3, [0.0], Path("control"))
