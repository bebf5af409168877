"""Evaluation of runs: example cases, and data that do not fit a run."""

from types import SimpleNamespace

import pytest

from steerformer.config import ConfigError
from steerformer.infer.evaluation import best_median_worst, load_run_data


def test_best_median_and_worst_case_are_chosen_among_those_with_a_score():
    assert best_median_worst([0.2, 0.9, None, 0.4, 0.1]) == {"best": 1, "median": 0, "worst": 4}
    assert best_median_worst([0.2, 0.9]) == {"best": 1, "worst": 0}
    assert best_median_worst([None, 0.9]) == {"best": 1}
    assert best_median_worst([None]) == {}


def test_only_data_can_be_overridden(unchecked):
    with pytest.raises(ConfigError, match=r"only data\.\* can be changed for a trained model, got 'seed=3'"):
        load_run_data(SimpleNamespace(), ["data.seed=1", "seed=3"])
