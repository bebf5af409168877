"""Voxel spacing of training cases, and what happens to scans with other voxels."""

import pytest

from steerformer.data.config import PairsConfig
from steerformer.io.errors import DataError
from steerformer.runs.spacing_range import SpacingRange, adapt_to_spacing, resampled_line

KNOWN = SpacingRange((0.8, 1.0, 2.0), (1.0, 1.0, 2.5), (1.2, 1.0, 3.0))
OPTIONS = {"name": "scan.nii.gz", "is_stated": True}


@pytest.mark.parametrize("spacing", [(0.8, 1.0, 3.0), (1.2, 0.96, 2.0), (1.25, 1.04, 3.1)])
def test_spacing_that_training_had_is_kept(spacing):
    config = PairsConfig(classes=2)
    assert KNOWN.holds(spacing) and adapt_to_spacing(config, KNOWN, spacing, **OPTIONS) is config


@pytest.mark.parametrize("spacing", [(0.7, 1.0, 2.5), (1.0, 1.1, 2.5), (1.0, 1.0, 3.3)])
def test_other_spacing_is_resampled_to_the_median(spacing):
    found = adapt_to_spacing(PairsConfig(classes=2, crop=0), KNOWN, spacing, **OPTIONS)
    assert found.spacing == KNOWN.median and found.crop == 0


@pytest.mark.parametrize("chosen", [{"spacing": (1.0,)}, {"size": (32,)}])
def test_configured_resampling_stays(chosen):
    config = PairsConfig(classes=2, **chosen)
    assert adapt_to_spacing(config, KNOWN, (2.0, 2.0, 2.0), **OPTIONS) is config


def test_runs_without_a_known_spacing_resample_nothing():
    config = PairsConfig(classes=2)
    assert adapt_to_spacing(config, None, (9.0, 9.0, 9.0), **OPTIONS) is config


def test_spacing_that_is_not_stated_is_rejected():
    with pytest.raises(DataError, match=r"scan.npy states no voxel spacing, .* 1 x 1 x 2.5 mm .* use a NIfTI file"):
        adapt_to_spacing(PairsConfig(classes=2), KNOWN, (1.0, 1.0, 1.0), name="scan.npy", is_stated=False)


def test_absurd_spacing_is_rejected():
    with pytest.raises(DataError, match=r"has voxels of 1e\+03 x 1 x 2.5 mm, more than 8 times .* correct the spacing"):
        adapt_to_spacing(PairsConfig(classes=2), KNOWN, (1000.0, 1.0, 2.5), **OPTIONS)


def test_json_round_trip_and_damaged_entries():
    assert SpacingRange.from_json(KNOWN.as_json()) == KNOWN
    for damaged in (None, 3, {}, {"smallest": 1}, KNOWN.as_json() | {"median": ["a"]}, KNOWN.as_json() | {"x": [1]}):
        assert SpacingRange.from_json(damaged) is None
    assert SpacingRange.from_json(KNOWN.as_json() | {"median": (1.0, 1.0)}) is None


def test_line_names_few_scans():
    line = resampled_line({f"{i}.nii": (2.0, 2.0, 2.0) for i in range(7)}, KNOWN)
    assert line.startswith("7 scans have other voxels than the training cases and were resampled to 1 x 1 x 2.5 mm")
    assert "4.nii (2 x 2 x 2 mm) and 2 more" in line and "5.nii" not in line
