"""Every preset builds and takes a step; the paper's are as large as the paper's."""

import re

import pytest
import torch
import torch.nn.functional as F

from steerformer import SO3, models
from steerformer.config import ConfigError
from steerformer.models.summary import count
from steerformer.testing import assert_equivariant
from steerformer.train import load_experiment

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


@pytest.fixture(autouse=True)
def monai(request):
    """Presets of its UNet need it."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name and "monai" in name:
        pytest.importorskip("monai", reason="the control is MONAI's UNet")


def test_the_papers_experiments_are_there():
    assert set(PAPER) <= set(models.presets())
    assert {name.replace("-paper", "-cpu") for name in PAPER} <= set(models.presets())
    hippocampus = {f"hippocampus-{kind}-cpu" for kind in ("transformer-l2", "convolution-l2", "monai")}
    assert {"ph2-monai-cpu", *hippocampus} <= set(models.presets())


@pytest.mark.parametrize("name", PAPER)
def test_as_many_parameters_as_the_paper(name):
    _, complex_as_one = count(models.build(name))
    assert complex_as_one / 1e6 == pytest.approx(PAPER[name], rel=0.05)
    said = float(re.search(r"([\d.]+)\s+(?:#\s)?here", _comment(name)).group(1))
    assert complex_as_one / 1e6 == pytest.approx(said, abs=0.006)


def _comment(name):
    from steerformer.models.registry import _texts

    lines = [line.removeprefix("# ") for line in _texts()[name].splitlines() if line.startswith("#")]
    return " ".join(lines)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_classifier_takes_a_training_step(name):
    """The paper's volumes are cut to 8 voxels a side, and their kernels to 3: at 32 and 5 a step takes minutes."""
    config = models.preset(name)["model"]
    if config["group"] == SO3.name and name.endswith("-paper"):
        config = {**config, "size": 8, "kernel_size": 3}
    model = models.build(config)
    take_a_step(model, model.in_type.randn(2, config["size"]), torch.arange(2))


@pytest.mark.parametrize("name", SEGMENTATION)
def test_every_u_net_takes_a_training_step_and_turns_with_its_input(name):
    """On grids as small as keep the coarsest from being a single voxel."""
    model = models.build(name)
    space = (2 * model.stride - 1, *[model.stride + 1] * (model.in_type.group.dim - 1))
    x = model.in_type.randn(1, space)
    take_a_step(model, x, torch.randint(model.config.classes, (1, *space)))
    if "monai" not in name:
        assert_equivariant(model, size=space, batch=1, rotations=model.in_type.group.grid_rotations()[1:3])


def take_a_step(model, x, y):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert all((old != new).any() for old, new in zip(before, model.parameters(), strict=True) if new.numel() > 1)


@pytest.mark.parametrize("name", SEGMENTATION)
def test_every_u_net_is_an_experiment_that_fits_its_data(name):
    experiment = load_experiment(name)
    assert experiment.model.in_channels == {"ph": 3, "br": 4, "hi": 1}[name[:2]]
    assert experiment.model.classes == {"ph": 2, "br": 4, "hi": 3}[name[:2]]
    found = models.summary(models.build(experiment.model))
    assert found.rows[-1].shape[0] == experiment.model.classes


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_every_classifier_is_an_experiment_and_its_summary_has_the_shapes_of_its_own_size(name):
    experiment = load_experiment(name)
    found = models.summary(models.build(experiment.model))
    assert found.rows[0].shape[1:] == (experiment.model.size,) * len(found.rows[0].shape[1:])
    assert found.rows[-1].shape == (10,)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(
        ConfigError, match=r"no preset 'rotmnist-transformer-k4'; did you mean 'rotmnist-transformer-k4-"
    ):
        models.build("rotmnist-transformer-k4")


def test_build_takes_configurations_too():
    model = models.build("rotmnist-transformer-k4-cpu")
    assert models.build(model.config).config == model.config


def test_other_things_are_refused(unchecked):
    with pytest.raises(TypeError, match=r"build takes a preset's name, a configuration or a mapping, got a int"):
        models.build(3)


def test_presets_are_not_shared():
    models.preset("rotmnist-transformer-k4-cpu")["model"]["size"] = 1
    assert models.preset("rotmnist-transformer-k4-cpu")["model"]["size"] == 28
