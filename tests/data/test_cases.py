"""Cases from their files to data sets: splits, cache, and errors."""

from dataclasses import replace
from functools import partial

import pytest

from data.coordinate_scans import CLASSES, labeled_scan, load_scans
from steerformer.data import DataError, SegmentationDataConfig
from steerformer.data.cases import CaseFiles, class_names, load_cases, shorten, split_cases
from steerformer.data.dataset import no_progress
from steerformer.data.preprocessing import preprocess


@pytest.fixture
def load(tmp_path):
    return partial(load_scans, tmp_path)


def test_splits_are_disjoint_and_have_the_configured_sizes():
    def numbers(**options):
        return [part.tolist() for part in split_cases(20, SegmentationDataConfig(**options), "here")]

    for options, sizes in (
        ({}, [12, 4, 4]),
        ({"train": 5, "validation": 3, "test": 2}, [5, 3, 2]),
        ({"validation": 0, "test": 0}, [20, 0, 0]),
        ({"validation": 0.01, "test": 0.33}, [12, 1, 7]),
        ({"train": 0.5, "validation": 0.25, "test": 0.25}, [10, 5, 5]),
    ):
        found = numbers(**options)
        assert [len(part) for part in found] == sizes
        assert len({number for part in found for number in part}) == sum(sizes)
        assert all(part == sorted(part) for part in found)
    assert numbers()[2] == numbers(validation=1, train=2)[2] != numbers(seed=1)[2]
    assert numbers()[1] == numbers(train=2)[1]
    for options in ({"train": 13}, {"validation": 10, "test": 10}, {"test": 30, "train": 1}):
        with pytest.raises(DataError, match=r"here has 20 cases, too few for .*validation=.* and test=.*; lower"):
            numbers(**options)
    with pytest.raises(DataError, match="here: train=0 leaves no training cases; set train=null"):
        numbers(train=0)


def test_cases_are_preprocessed_once_and_again_after_changes(load, tmp_path, cache_folder, monkeypatch):
    calls = []
    load = partial(load, count=5)
    load()
    assert len(list((cache_folder / "cases").iterdir())) == 5
    monkeypatch.setattr("steerformer.data.cases.preprocess", lambda *rest: calls.append(rest) or preprocess(*rest))
    load(seed=3, patch_size=4, test_rotation="any", validation=1)  # options that preprocessing does not depend on
    assert calls == []
    (tmp_path / "3.txt").write_text("changed")
    load()
    assert len(calls) == 1
    load(crop=1)
    assert len(calls) == 6
    truncated = load().test.cases[0].path
    truncated.write_bytes(truncated.read_bytes()[:-7])
    load()
    assert len(calls) == 7


def test_all_cases_have_the_same_channels_and_axes(load, tmp_path):
    def load_scans(*scans):
        cases = [CaseFiles(f"{scan.x.shape}", (tmp_path / "0.txt",), lambda scan=scan: scan) for scan in scans]
        load_cases(cases, CLASSES, SegmentationDataConfig(test=0, validation=0), no_progress, where="here")

    load()
    one, flat = labeled_scan(0), labeled_scan(0, (8, 8))
    with pytest.raises(DataError, match=r"0\.txt has 4 channels, but .*0\.txt has 2; set channels"):
        load_scans(one, replace(one, x=one.x[:2]))
    with pytest.raises(DataError, match="are an image and a volume"):
        load_scans(one, flat)
    with pytest.raises(DataError, match="patch_size has 2 numbers, but the data have 3 spatial axes"):
        load(patch_size=(4, 4))


def test_classes_have_default_names():
    assert class_names(2) == ("background", "foreground") and class_names(3) == ("background", "1", "2")


def test_long_lists_of_names_are_shortened():
    assert shorten(["a", "b"]) == "a, b" and shorten(list("abcdefg")) == "a, b, c, d, e and 2 more"
