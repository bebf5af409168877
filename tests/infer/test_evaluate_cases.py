"""Evaluation of segmentation models, one whole case at a time."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from steerformer.data import SegmentationDataConfig
from steerformer.data.cases import CaseFiles, load_cases
from steerformer.data.dataset import no_progress
from steerformer.infer.evaluation import evaluate_cases
from steerformer.io.scans import Scan
from steerformer.metrics.overlap import Overlap
from steerformer.training.losses import make_loss
from training.cases import CLASSES, LabelReader, SyntheticCases


class BackgroundOnly(nn.Module):
    """Predicts background everywhere."""

    def forward(self, x):
        return nn.functional.one_hot(torch.zeros_like(x[:, 0]).long(), 4).movedim(-1, 1).float()


def test_whole_cases_of_any_shape_are_evaluated():
    model, cases = LabelReader().train(), SyntheticCases()
    loss = make_loss("cross_entropy")
    results = evaluate_cases(model, cases, range(3), classes=CLASSES, loss=loss, distances=False)
    assert [result.name for result in results] == list(cases.names)
    assert [shape[2:] for shape in model.shapes] == [tuple(labels.shape) for labels in cases.labels]
    assert all(found == Overlap("found", 1.0, None) for result in results for found in result.classes.values())
    entropy = -math.log(math.exp(10) / (math.exp(10) + 2))
    assert [result.loss for result in results] == pytest.approx([entropy] * 3, rel=1e-3)
    assert model.training and model.scale.grad is None


def test_predict_and_watch_are_called():
    seen = []
    results = evaluate_cases(
        LabelReader(),
        SyntheticCases(),
        [2],
        classes=CLASSES,
        distances=False,
        predict=lambda model, x: -model(x[None])[0],
        watch=lambda number, labels, result: seen.append((number, labels, result)),
    )
    ((number, labels, result),) = seen
    assert number == 2 and result is results[0] and labels.shape == (6, 4, 2) and result.loss == 0.0
    assert not ((labels == SyntheticCases().labels[2]) & (labels > 0)).all()


@pytest.mark.parametrize("settings", [{"spacing": 4.0}, {"crop": 0}], ids=["resampled", "cropped"])
def test_structure_removed_by_preprocessing_is_missed(tmp_path, settings):
    """The second of two cases has one voxel of edema where the scan is dark, which is also part of the whole tumor."""
    classes = ("background", "edema", "necrosis", "enhancing")
    x = torch.zeros(1, 16, 16, 16)
    x[:, :12] = 1.0
    cases = []
    for name in ("empty", "spot"):
        labels = torch.zeros(16, 16, 16, dtype=torch.uint8)
        labels[13, 0, 0] = name == "spot"
        (tmp_path / name).touch()
        read = partial(Scan, x, (1.0, 1.0, 1.0), Path(name), "volume", labels=labels)
        cases.append(CaseFiles(name, (tmp_path / name,), read))
    config = SegmentationDataConfig(normalize="none", train=1, validation=0, test=1, **settings)
    found = {}
    for seed in range(4):  # each case is the test case under some seed
        splits = load_cases(cases, classes, config.model_copy(update={"seed": seed}), no_progress, where="here")
        assert not splits.test[0][1].any()  # no voxel of the spot is left
        (result,) = evaluate_cases(BackgroundOnly(), splits.test, [0], classes=classes, distances=False)
        found[result.name] = {**result.classes, "whole": result.regions["whole"], "core": result.regions["core"]}
    missed, absent = Overlap("missed", 0.0, None), Overlap("absent", None, None)
    assert set(found["empty"].values()) == {absent}
    expected = dict.fromkeys(("edema", "whole"), missed) | dict.fromkeys(("necrosis", "enhancing", "core"), absent)
    assert found["spot"] == expected
