"""The error budget: what each layer adds at arbitrary angles, against definitions and layers with known errors."""

import pytest
import torch
from torch import nn

from audit.tiny import Plain, Tiny
from steerformer import SO2, FieldType
from steerformer.audit import error_budget, random_rotations, scene_budget
from steerformer.nn import AvgPool, Conv
from steerformer.testing import blobs, equivariance_error


class Chain(nn.Module):
    """Layers in a row, with the types of both ends."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.in_type, self.out_type = layers[0].in_type, layers[-1].out_type

    def forward(self, x):
        return self.layers(x)


class TimesEnergy(nn.Module):
    """A smooth nonlinearity that acts at each position and commutes with all rotations."""

    def __init__(self, field_type):
        super().__init__()
        self.in_type = self.out_type = field_type

    def forward(self, x):
        return x * x.square().sum(1, keepdim=True)


class Distorted(nn.Module):
    """A map with a known error: the features plus ``share`` of them with the axes exchanged, which is a reflection."""

    def __init__(self, field_type, share):
        super().__init__()
        self.in_type = self.out_type = field_type
        self.share = share

    def forward(self, x):
        return x + self.share * x.transpose(2, 3)


def budgets(model, scene, size, rotations=None):
    rotations = random_rotations(model.in_type.group, 2) if rotations is None else rotations
    return {found.name: found for found in error_budget(model, scene, size, rotations)}


def test_total_at_the_center_agrees_with_equivariance_error(group):
    """A map of one voxel is its center, which ``equivariance_error`` compares without interpolation."""
    image, features = FieldType.image(group, 1), FieldType(group, (2, 1))
    layer = Conv(image, features, kernel_size=9, padding=0).double()
    scene, R = blobs(image, batch=4), random_rotations(group, 1)[0]
    found = budgets(Chain(layer), scene, (9,) * group.dim, [R])["layers.0"]
    expected = equivariance_error(layer, R, scene=scene, size=9)
    assert found.total == pytest.approx(expected.total, rel=1e-6)
    for degree, part in found.degrees.items():
        assert part.total == pytest.approx(expected.per_degree[degree], rel=1e-6)
        assert part.energy == pytest.approx(expected.energy[degree], rel=1e-6)


def test_grid_rotations_add_nothing(group):
    model = Tiny(group).double().eval()
    found = budgets(model, blobs(model.in_type, batch=2), (12,) * group.dim, list(group.grid_rotations()[1:3]))
    assert {"conv", "pool", "encoder.blocks.0.attention", "last", "logits"} <= set(found)
    assert max(part.total for part in found.values()) < 1e-9
    assert max(part.added for part in found.values()) < 1e-9


def test_pointwise_layers_add_next_to_nothing_and_pass_errors_on(group):
    """A smooth function of the norm commutes with every rotation; what it seems to add comes from interpolation."""
    image, features = FieldType.image(group, 1), FieldType(group, (2, 2, 1))
    model = Chain(Conv(image, features, kernel_size=3), TimesEnergy(features)).double()
    found = budgets(model, blobs(image, batch=2, sigma=3.0, extent=1.0), (24,) * group.dim)
    conv, product = found["layers.0"], found["layers.1"]
    assert product.added < 2e-3 < 5e-3 < conv.added
    assert product.total > 0.5 * conv.total


def test_coarse_maps_are_known_between_voxels():
    """An antialiased pooling of a smooth scene is nearly exact; splines through 7x7 voxels would be off by far more."""
    image = FieldType.image(SO2, 1)
    model = Chain(AvgPool(image, kernel_size=4, antialiased=True, blur=0.7)).double()
    scene = blobs(image, batch=4, sigma=2.0, extent=1.5)
    assert budgets(model, scene, (28, 28))["layers.0"].added < 0.01


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_added_error_is_that_of_a_known_distortion(share):
    """Reflections do not commute with rotations: f(Rx) - R f(x) = share (SR - RS) x, of mean square 2 share^2."""
    image = FieldType.image(SO2, 1)
    scene = blobs(image, batch=64, sigma=2.0, extent=3.0)
    found = budgets(Chain(Distorted(image, share)), scene, (25, 25), random_rotations(SO2, 8))["layers.0"]
    assert found.added == pytest.approx(2**0.5 * share, rel=0.35)
    assert found.total == pytest.approx(found.added, rel=0.02)


def test_the_layer_that_adds_the_error_is_found():
    """An error in the middle: it is added there, and passed on by the layers behind it."""
    image = FieldType.image(SO2, 1)

    def smooth():
        return AvgPool(image, kernel_size=3, stride=1)

    found = budgets(Chain(smooth(), Distorted(image, 0.2), smooth()).double(), blobs(image, sigma=3.0), (28, 28))
    added = [found[f"layers.{i}"].added for i in range(3)]
    assert added[1] > 0.1 and max(added[0], added[2]) < 0.02
    assert found["layers.2"].total > 0.1 > 0.02 > found["layers.0"].total


def test_groups_that_fit_into_memory_give_the_same(monkeypatch):
    model = Tiny(SO2).double().eval()
    scene = blobs(model.in_type, batch=2)
    whole = budgets(model, scene, (12, 12))
    monkeypatch.setattr("steerformer.audit.budget._MOST_BYTES", 1)
    assert budgets(model, scene, (12, 12)) == whole


def test_layers_of_several_inputs_have_no_error_of_their_own():
    class Sum(nn.Module):
        def __init__(self, field_type):
            super().__init__()
            self.in_type = self.out_type = field_type

        def forward(self, x, y):
            return x + y

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_type = self.out_type = FieldType.image(SO2, 1)
            self.sum = Sum(self.in_type)

        def forward(self, x):
            return self.sum(x, 2 * x)

    found = budgets(Model(), blobs(FieldType.image(SO2, 1), batch=2), (16, 16))
    assert found["sum"].added is None and found["sum"].total < 1e-3
    assert found["sum"].degrees[0].added is None and found["logits"].added < 1e-3


def test_scenes_match_the_samples_and_a_plain_model_has_large_errors(group):
    """The negative control."""
    samples = torch.rand(2, 1, *(12,) * group.dim)
    steerable, plain = (
        {found.name: found for found in scene_budget(model(group).eval(), samples, random_rotations(group, 2))}
        for model in (Tiny, Plain)
    )
    assert steerable["conv"].added < 0.05 < plain["norm"].total
    assert steerable["logits"].grid == ()
