"""Evaluation of runs: example cases, and data that do not fit a run."""

import json
from types import SimpleNamespace

import pytest

from steerformer.config import ConfigError
from steerformer.infer.evaluation import RunEvaluation, best_median_worst, evaluate_run, load_run_data, save_evaluation
from steerformer.metrics.case_scores import CaseScores
from steerformer.metrics.overlap import Overlap


def test_best_median_and_worst_case_are_chosen_among_those_with_a_score():
    assert best_median_worst([0.2, 0.9, None, 0.4, 0.1]) == {"best": 1, "median": 0, "worst": 4}
    assert best_median_worst([0.2, 0.9]) == {"best": 1, "worst": 0}
    assert best_median_worst([None, 0.9]) == {"best": 1}
    assert best_median_worst([None]) == {}


def test_only_data_can_be_overridden(unchecked):
    with pytest.raises(ConfigError, match=r"only data\.\* can be changed for a trained model, got 'seed=3'"):
        load_run_data(SimpleNamespace(), ["data.seed=1", "seed=3"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "tests"}, "split is one of train, validation, test; got 'tests'"),
        ({"rotations": 0}, "rotations must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_options_are_checked_before_data_are_loaded(unchecked, options, words):
    with pytest.raises(ValueError, match=words):
        evaluate_run(SimpleNamespace(), **options)


def test_scores_of_cases_are_saved_beside_the_metrics(tmp_path):
    path = tmp_path / "evaluation-test.json"
    assert save_evaluation(RunEvaluation({"accuracy": 0.5}), path) == (path,)
    assert json.loads(path.read_text()) == {"accuracy": 0.5}
    case = CaseScores("one", 0.0, {"lesion": Overlap("found", 0.75, 1.5)}, {})
    files = save_evaluation(RunEvaluation({"dice": 0.75}, [case]), path)
    assert files == (path, tmp_path / "evaluation-test.csv") and json.loads(path.read_text()) == {"dice": 0.75}
    assert "one" in files[1].read_text() and "0.75" in files[1].read_text()
