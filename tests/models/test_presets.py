"""Every preset builds and trains; those of the paper have its number of parameters."""

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F

from steerformer import models
from steerformer.config import ConfigError
from steerformer.models.summary import count
from steerformer.runs import load_experiment
from steerformer.testing import assert_equivariant
from steerformer.training.losses import deeply_supervised

pytestmark = pytest.mark.slow

PAPER = {  # million parameters, a complex one counted as one (paper, table "comparison")
    "rotmnist-convolution-k4-paper": 1.18,
    "rotmnist-convolution-k8-paper": 2.54,
    "rotmnist-transformer-k4-paper": 1.13,
    "rotmnist-transformer-k8-paper": 2.24,
    "modelnet10-convolution-l3-paper": 1.08,
    "modelnet10-transformer-l3-paper": 0.92,
    "ph2-convolution-k4-paper": 0.35,
    "ph2-convolution-k8-paper": 0.96,
    "ph2-transformer-k4-paper": 0.44,
    "ph2-transformer-k8-paper": 1.22,
    "brats-convolution-l2-paper": 0.12,
    "brats-transformer-l2-paper": 0.16,
}
SEGMENTATION = [name for name in models.presets() if models.preset(name)["model"]["kind"] in ("unet", "monai")]
CLASSIFICATION = [name for name in models.presets() if name not in SEGMENTATION]


@cache
def built(name):
    """The model of a preset, built once; its weights may have been trained."""
    return models.build(name)


def test_experiments_of_the_paper_have_presets():
    assert set(PAPER) <= set(models.presets())
    assert {name.replace("-paper", "-cpu") for name in PAPER} <= set(models.presets())
    hippocampus = {f"hippocampus-{kind}-cpu" for kind in ("transformer-l2", "convolution-l2", "monai", "dynunet")}
    hippocampus.add("hippocampus-transformer-l2-rotated-cpu")
    rivals = {"hippocampus-monai-rotated-cpu", "hippocampus-dynunet-rotated-cpu", "rotmnist-cnn-rotated-cpu"}
    assert {"ph2-monai-cpu", *hippocampus, *rivals} <= set(models.presets())


def test_all_networks_for_the_hippocampus_see_the_same_data():
    names = [name for name in models.presets() if name.startswith("hippocampus-")]
    seen = [load_experiment(name).data.model_dump(exclude={"train_rotation", "train_rotated"}) for name in names]
    assert len(names) > 4 and all(data == seen[0] for data in seen)


@pytest.mark.parametrize("name", [name for name in models.presets() if "-rotated-" in name])
def test_presets_that_learn_rotations_differ_by_rotations_only(name):
    rival, control = load_experiment(name), load_experiment(name.replace("-rotated", ""))
    assert rival.model == control.model
    told = {"train_rotation", "train_rotated", "augment"}
    assert rival.data.model_dump(exclude=told) == control.data.model_dump(exclude=told)
    assert rival.data.train_rotation == "any" or rival.data.augment == "rotate"


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts_match_the_paper(name):
    _, complex_as_one = count(built(name))
    assert complex_as_one / 1e6 == pytest.approx(PAPER[name], rel=0.05)
    said = float(re.search(r"([\d.]+)\s+(?:#\s)?here", _comment(name)).group(1))
    assert complex_as_one / 1e6 == pytest.approx(said, abs=0.006)


def _comment(name):
    from steerformer.models.registry import _texts

    lines = [line.removeprefix("# ") for line in _texts()[name].splitlines() if line.startswith("#")]
    return " ".join(lines)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_classifier_takes_a_training_step(name):
    """Presets of the paper on small grids and with small kernels: in 3D a step would take minutes."""
    config = models.preset(name)["model"]
    if name.endswith("-paper"):
        config = {**config, "size": 8, "kernel_size": [3, 3, 1]}
    model = models.build(config)
    take_step(model, model.in_type.randn(2, config["size"]), torch.arange(2))


@pytest.mark.parametrize("name", SEGMENTATION)
def test_every_unet_takes_a_training_step_and_is_equivariant(name):
    """On the smallest grids whose coarsest level has more than one voxel."""
    model = built(name)
    space = (model.stride + 2, *[model.stride + 1] * (model.in_type.group.dim - 1))
    x = model.in_type.randn(1, space)
    take_step(model, x, torch.randint(model.config.classes, (1, *space)))
    if model.config.kind != "monai":
        assert_equivariant(model, size=space, batch=1, rotations=model.in_type.group.grid_rotations()[1:3])


def take_step(model, x, y):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    logits = model(x)
    loss = F.cross_entropy(logits, y) if logits.ndim == y.ndim + 1 else deeply_supervised(F.cross_entropy, logits, y)
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert all((old != new).any() for old, new in zip(before, model.parameters(), strict=True) if new.numel() > 1)


@pytest.mark.parametrize("name", SEGMENTATION)
def test_every_unet_matches_its_data(name):
    experiment = load_experiment(name)
    assert experiment.model.in_channels == {"ph": 3, "br": 4, "hi": 1}[name[:2]]
    assert experiment.model.classes == {"ph": 2, "br": 4, "hi": 3}[name[:2]]
    found = models.summary(built(name))
    assert found.rows[-1].shape[0] == experiment.model.classes


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_classifier_matches_its_data(name):
    experiment = load_experiment(name)
    found = models.summary(built(name))
    assert found.rows[0].shape[1:] == (experiment.model.size,) * len(found.rows[0].shape[1:])
    assert found.rows[-1].shape == (10,)


def test_unknown_presets_get_a_suggestion():
    with pytest.raises(
        ConfigError, match=r"no preset 'rotmnist-transformer-k4'; did you mean 'rotmnist-transformer-k4-"
    ):
        models.build("rotmnist-transformer-k4")


def test_build_takes_a_config():
    model = models.build("rotmnist-transformer-k4-cpu")
    assert models.build(model.config).config == model.config


def test_build_rejects_other_types(unchecked):
    with pytest.raises(TypeError, match=r"build takes the name of a preset, a configuration or a mapping, got int"):
        models.build(3)


def test_presets_are_copies():
    models.preset("rotmnist-transformer-k4-cpu")["model"]["size"] = 1
    assert models.preset("rotmnist-transformer-k4-cpu")["model"]["size"] == 28
