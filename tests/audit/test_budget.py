"""The error budget: what each layer adds at arbitrary angles, against definitions and layers with known errors."""

import pytest
import torch
from torch import nn

from audit.tiny import Plain, Tiny
from steerformer import SO2, FieldType
from steerformer.audit import error_budget, random_rotations, scene_budget
from steerformer.audit.layer_maps import ScenePasses
from steerformer.nn import Attention, AvgPool, Conv, RadialWindow
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


@pytest.mark.parametrize("pooling", [1, 4])
def test_windows_commute_with_all_rotations(pooling):
    """A radial window has no error of its own; on a coarse grid it has to follow the shifted scenes."""
    image = FieldType.image(SO2, 1)
    first = AvgPool(image, kernel_size=4, antialiased=True, blur=0.7) if pooling > 1 else AvgPool(image, kernel_size=1)
    model = Chain(first, RadialWindow(image, width=1.5 if pooling > 1 else 6.0)).double()
    found = budgets(model, blobs(image, batch=4, sigma=3.0, extent=4.0), (28, 28))["layers.1"]
    assert found.added < 0.01
    assert model.layers[1].window_center is None


def test_windows_on_keys_follow_shifted_scenes():
    """Far from the edge of the window, attention with and without it adds about the same error."""
    features = FieldType(SO2, (2, 2))
    torch.manual_seed(0)
    first = (Conv(FieldType.image(SO2, 1), features, kernel_size=5), AvgPool(features, kernel_size=2, antialiased=True))
    attention = Attention(features, num_heads=1, radial="smooth", key_window=3.0)
    with torch.no_grad():
        for weight in attention.query.weights:
            weight.mul_(0.1)  # nearly uniform attention: what remains are positions and the edge
    model = Chain(*first, attention).double()
    scene = blobs(model.in_type, batch=4, sigma=2.0, extent=2.0)
    windowed = budgets(model, scene, (28, 28))["layers.2"].added
    attention.key_window = None
    assert windowed < 0.5 * budgets(model, scene, (28, 28))["layers.2"].added


@pytest.mark.parametrize(
    ("layers", "size", "strides"),
    [
        ((("conv", 7, 0),), 12, [1]),
        ((("pool", 2), ("pool", 2), ("pool", 2)), 28, [2, 4, 8]),
        ((("pool", 3), ("pool", 2)), 24, [3, 6]),
    ],
)
def test_strides_of_maps_are_found(layers, size, strides):
    """An unpadded convolution keeps the stride of 1, and 28 voxels pooled thrice by 2 are 3 of stride 8, not 9."""
    image = FieldType.image(SO2, 1)
    made = [
        Conv(image, image, kernel_size=numbers[0], padding=numbers[1])
        if kind == "conv"
        else AvgPool(image, kernel_size=numbers[0], antialiased=True)
        for kind, *numbers in layers
    ]
    model = Chain(*made).double()
    passes = ScenePasses(model, (size, size), blobs(image, batch=4, sigma=3.0, extent=2.0))
    found = [passes.strides[passes.shapes[f"layers.{i}"].output[2:]] for i in range(len(layers))]
    assert found == strides


def test_grids_that_rotations_leave_are_left_out():
    image = FieldType.image(SO2, 1)
    model = Chain(AvgPool(image, kernel_size=8)).double()
    assert budgets(model, blobs(image, batch=2), (16, 16)) == {}


def test_batches_that_fit_into_memory_give_the_same(monkeypatch):
    model = Tiny(SO2).double().eval()
    scene = blobs(model.in_type, batch=2)
    whole = budgets(model, scene, (12, 12))
    monkeypatch.setattr("steerformer.audit.layer_maps._MOST_BYTES", 1)
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
