"""Logits of data sets, averages over rotations, and classes of arrays."""

import copy
import math
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from audit.tiny import Plain
from steerformer import SO2, SO3, models
from steerformer.infer.classification import (
    classify,
    classify_inputs,
    equally_spaced_rotations,
    rotation_averaged_probabilities,
)
from steerformer.io.errors import DataError
from steerformer.metrics.accuracy import classification_scores
from steerformer.metrics.statistics import binomial_error
from steerformer.runs import ExperimentConfig, RunFolder


def test_logits_come_in_order_in_eval_mode_without_side_effects():
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)).train()
    x = torch.randn(10, 3)
    before, seen = torch.get_rng_state(), []
    logits = classify(model, TensorDataset(x, torch.zeros(10)), batch_size=4, progress=seen.append)
    torch.testing.assert_close(logits, model[0](x))
    assert seen == [4, 4, 2]
    assert model.training and not logits.requires_grad
    assert torch.equal(torch.get_rng_state(), before)


def test_samples_take_the_dtype_of_the_model():
    model = nn.Linear(3, 2).double()
    assert classify(model, TensorDataset(torch.ones(2, 3), torch.zeros(2))).dtype == torch.float64


def test_probabilities_are_averaged_over_rotations():
    """The oracle: the mean softmax over four calls of torch.rot90."""
    model, x = Plain(SO2, classes=5).eval(), torch.rand(5, 1, 12, 12)
    samples = TensorDataset(x, torch.arange(5))
    scores, labels, single = rotation_averaged_probabilities(
        model, samples, equally_spaced_rotations(SO2, 4), batch_size=2
    )
    with torch.no_grad():
        views = [model(torch.rot90(x, times, (2, 3))).softmax(1) for times in range(4)]
    assert single == sum((view.argmax(1) == torch.arange(5)).sum().item() for view in views) / 20
    assert torch.allclose(scores, sum(views) / 4, atol=1e-6)
    assert labels.tolist() == [0, 1, 2, 3, 4]
    alone, *_ = rotation_averaged_probabilities(model, samples, equally_spaced_rotations(SO2, 1))
    assert not torch.allclose(scores, alone, atol=1e-3)


def test_rotated_samples_take_the_dtype_of_the_model():
    model, samples = Plain(SO2, classes=5).eval(), TensorDataset(torch.rand(5, 1, 12, 12), torch.arange(5))
    single, double = (
        rotation_averaged_probabilities(network, samples, equally_spaced_rotations(SO2, 4))[0]
        for network in (model, copy.deepcopy(model).double())
    )
    assert double.dtype == torch.float64 and torch.allclose(single.double(), double, atol=1e-5)


def test_equally_spaced_rotations_of_volumes_preserve_the_last_axis():
    rotations = equally_spaced_rotations(SO3, 8)
    assert torch.equal(rotations[0], torch.eye(3, dtype=torch.float64))
    assert all(torch.allclose(R[:, 2], torch.tensor([0.0, 0.0, 1.0]).double()) for R in rotations)


def test_scores_count_correct_samples():
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
    found = classification_scores(scores, torch.tensor([0, 1, 1, 1]), ("a", "b", "c"))
    assert found.accuracy == 0.75 and found.samples == 4
    assert found.standard_error == pytest.approx(math.sqrt(0.75 * 0.25 / 4))
    assert found.per_class == {"a": 1.0, "b": pytest.approx(2 / 3), "c": None}
    assert found.confusion == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert binomial_error(1.0, 10) == 0.0


@pytest.fixture(scope="module")
def volume_run():
    """A classifier of volumes that were divided by their standard deviation."""
    torch.manual_seed(0)
    model = {"kind": "cnn", "group": "SO3", "size": 8, "classes": 2, "widths": [[4]], "kernel_size": 3, "hidden": 16}
    data = {"name": "folder", "size": 8, "normalize": "std"}
    config = ExperimentConfig.model_validate({"model": model, "data": data})
    return RunFolder(Path("run"), config, models.build(config.model).eval(), ("a", "b"))


def test_array_is_preprocessed_as_a_file_with_the_same_values(volume_run, tmp_path):
    """Resized to the model's input and normalized, so that another unit of the values changes nothing."""
    values = np.random.default_rng(0).uniform(size=(10, 7, 5)).astype(np.float32)
    np.save(tmp_path / "a.npy", 300 * values)
    file, array, scaled = (
        classify_inputs(volume_run, [item])[0].probabilities
        for item in (tmp_path / "a.npy", 300 * values[None], torch.from_numpy(values[None]))
    )
    assert file == array == pytest.approx(scaled, abs=1e-6)
    with torch.no_grad():  # the negative control: normalization matters
        padded = np.pad(300 * values, ((0, 0), (1, 2), (2, 3)))[None, None, 1:9, 1:9, 1:9]
        raw = volume_run.model(torch.from_numpy(padded.copy())).softmax(1)[0]
    assert not torch.allclose(raw, torch.tensor(list(file.values())), atol=1e-3)


def test_array_with_spacing_is_a_file_with_that_spacing(volume_run, tmp_path):
    values = np.random.default_rng(0).uniform(size=(8, 8, 4)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([1.0, 1.0, 2.0, 1.0])), tmp_path / "a.nii")
    (file,) = classify_inputs(volume_run, [tmp_path / "a.nii"])
    (array,) = classify_inputs(volume_run, [values[None]], spacing=(1.0, 1.0, 2.0))
    (cubic,) = classify_inputs(volume_run, [values[None]])
    assert array.probabilities == file.probabilities != pytest.approx(cubic.probabilities, abs=1e-4)


def test_file_of_the_wrong_kind_is_rejected(volume_run, tmp_path):
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png is an image, but the model takes a volume"):
        classify_inputs(volume_run, [tmp_path / "a.png"])


def test_modalities_in_separate_files_are_rejected(volume_run):
    with pytest.raises(DataError, match=r"a_0000\.nii is one of 2 modalities, but a classifier takes one file"):
        classify_inputs(volume_run, [["a_0000.nii", "a_0001.nii"]])
