"""Attention between two fields and within a radius, against two loops over queries and keys."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import steerformer as sf
from measure import Contestant, peak_memory
from nn import attention_oracle
from nn.attention_inputs import fields
from nn.test_attention import PHI, relative
from steerformer import SO2, SO3, FieldType
from steerformer.nn import attention_regions as regions

IMPLEMENTATIONS = ["dense", "blockwise"]
CASES = {
    "same-grid": {"context": (3, 3, 2)},
    "other-parity": {"context": (4, 2, 3), "masked": True},
    "other-degrees": {"context": (2, 4, 1), "copies": (3, 0, 2, 2)},
    "image": {"context": (4, 3, 2), "copies": None},
    "coarse-context": {"context": (2, 2, 1), "spacing": (1.0, 0.7, 2.5), "context_spacing": (2.0, 2.1, 2.5)},
    "fine-context": {"context": (5, 4, 3), "spacing": (1.0, 1.5, 1.0), "context_spacing": (0.5, 1.0, 0.5)},
    "local": {"radius": 1.5, "masked": True},
    "local-smooth": {"radius": 2.4, "falloff": 1.1, "spacing": (1.0, 0.7, 2.5)},
    "local-context": {"radius": 1.2, "context": (2, 5, 2), "falloff": 0.4, "masked": True},
    "local-coarse-context": {"radius": 2.2, "context": (2, 2, 2), "context_spacing": (2.0, 2.0, 2.0)},
}
SLOW_IN_3D = [case for case in CASES if case not in ("other-parity", "local-context")]


def some_grid(group):
    return (3, 4) if group is SO2 else (3, 2, 2)


def smooth_weight(radius, falloff):
    """The weight of a key at a distance, by its definition."""

    def weight(distance):
        if distance > radius * (1 + 1e-9):
            return 0.0
        t = min(1.0, (radius - distance) / falloff) if falloff else 1.0
        return max(0.0, t**3 * (10 - 15 * t + 6 * t**2))

    return weight


@pytest.fixture
def small_regions(monkeypatch):
    monkeypatch.setattr(regions, "_sides", lambda lattice, *others: (2, 1, 2)[: len(lattice)])


@pytest.mark.parametrize(
    ("group", "case"),
    [(SO2, case) for case in CASES]
    + [pytest.param(SO3, case, marks=[pytest.mark.slow] * (case in SLOW_IN_3D)) for case in CASES],
    ids=str,
)
def test_attention_to_a_context_matches_its_definition(group, case, float64, small_regions):
    """Outputs and gradients of both implementations, exact in float64, to rounding error in float32."""
    options = {name: value[: group.dim] if "spacing" in name else value for name, value in CASES[case].items()}
    size, copies = options.pop("context", None), options.pop("copies", (2, 3, 1))
    masked, radius, falloff = options.pop("masked", False), options.get("radius"), options.get("falloff", 0.0)
    other = None if size is None else FieldType.image(group, 2) if copies is None else FieldType(group, copies)
    layer = sf.nn.Attention(fields(group), other, num_heads=2, **options)
    x = layer.in_type.randn(1, some_grid(group)).requires_grad_()
    context = None if other is None else other.randn(1, size[: group.dim]).requires_grad_()
    mask = torch.rand(1, *(x if context is None else context).shape[2:]) > 0.3 if masked else None
    sides = options.get("spacing", (1.0,) * group.dim)
    mean = math.prod(sides) ** (1 / group.dim)
    parameters = dict(layer.named_parameters())
    expected = attention_oracle.attention(
        layer.in_type,
        parameters,
        x,
        num_heads=2,
        scale="paper",
        phi=PHI["soft"],
        spacing=tuple(side / mean for side in sides),
        mask=mask,
        context=context,
        context_type=other,
        context_spacing=tuple(side / mean for side in options.get("context_spacing", sides)),
        distance_weight=smooth_weight(radius / mean, falloff / mean) if radius else lambda distance: 1.0,
    )
    towards = torch.randn_like(expected)
    wanted = [x, *([] if context is None else [context]), *parameters.values()]
    right = [expected.detach(), *torch.autograd.grad((expected * towards).sum(), wanted)]
    for implementation in IMPLEMENTATIONS:
        layer.implementation = implementation
        for value, exact in zip(outcome(layer, x, context, mask, towards), right, strict=True):
            assert_close(value, exact, rtol=1e-10, atol=1e-10)
        single = copy.deepcopy(layer).float()
        shorter = None if context is None else context.float()
        for value, exact in zip(outcome(single, x.float(), shorter, mask, towards.float()), right, strict=True):
            assert relative(value, exact) < 2e-5, implementation


def outcome(layer, x, context, mask, towards):
    inputs = [None if field is None else field.detach().requires_grad_() for field in (x, context)]
    y = layer(*inputs, mask=mask)
    wanted = [field for field in inputs if field is not None] + list(layer.parameters())
    return [y.detach(), *torch.autograd.grad((y * towards).sum(), wanted)]


@pytest.mark.parametrize("case", ["cross", "coarse", "local", "local-cross"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_rotating_both_fields_rotates_the_output(group, case, implementation, float64, small_regions):
    """Exact under the rotations of the grid, also where one grid is odd and the other even."""
    options = {"coarse": {"context_spacing": (2.0,) * group.dim}}.get(case, {})
    options |= {"radius": 1.8, "falloff": 0.7} if "local" in case else {}
    other = None if case == "local" else FieldType(group, (3, 1, 1))
    layer = sf.nn.Attention(fields(group), other, num_heads=2, implementation=implementation, **options)
    x = layer.in_type.randn(1, 5 if group is SO2 else 3)
    context = None if other is None else other.randn(1, 4 if group is SO2 else 2)
    y = layer(x, context)
    for R in group.grid_rotations():
        rotated = layer(layer.in_type.rotate(x, R), None if context is None else other.rotate(context, R))
        assert_close(rotated, layer.in_type.rotate(y, R), rtol=0, atol=1e-10)
    if context is not None:  # the control: only one of both fields is rotated
        assert not torch.allclose(layer(layer.in_type.rotate(x, R), context), layer.in_type.rotate(y, R), atol=1e-2)


def test_local_attention_commutes_with_translations(group, float64):
    """What a window on the absolute position does not."""
    layer = sf.nn.Attention(fields(group), num_heads=2, radius=1.6, falloff=0.8)
    windowed = sf.nn.Attention(fields(group), num_heads=2, key_window=2.0)
    x = layer.in_type.randn(1, 9 if group is SO2 else 6)
    shifted, inner = x.roll(1, dims=2), (slice(None), slice(None), slice(2, -2), slice(2, -2))
    assert_close(layer(shifted)[inner][:, :, 1:], layer(x)[inner][:, :, :-1])
    assert not torch.allclose(windowed(shifted)[inner][:, :, 1:], windowed(x)[inner][:, :, :-1], atol=1e-3)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_radius_over_the_whole_grid_is_global_attention(group, implementation, float64):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation)
    local = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation, radius=100.0)
    local.load_state_dict(layer.state_dict())
    x = layer.in_type.randn(2, some_grid(group)).requires_grad_()
    found, expected = outcome(local, x, None, None, torch.ones(())), outcome(layer, x, None, None, torch.ones(()))
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)
    near = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation, radius=1.0)
    near.load_state_dict(layer.state_dict())
    assert relative(near(x), layer(x)) > 0.05  # the control


@pytest.mark.parametrize("options", [{}, {"falloff": 1.5}, {"context": True}], ids=["hard", "smooth", "context"])
def test_regions_of_default_size_agree_with_dense(group, options):
    """Float32, grids of many regions, and all gradients."""
    options = dict(options)
    other = fields(group, (2, 2)) if options.pop("context", False) else None
    layer = sf.nn.Attention(fields(group), other, num_heads=2, radius=2.5, **options)
    x = layer.in_type.randn(2, (24, 17) if group is SO2 else (7, 6, 9))
    context = None if other is None else other.randn(2, (21, 16) if group is SO2 else (6, 5, 9))
    mask = torch.rand(2, *(x if context is None else context).shape[2:]) > 0.3
    found = []
    for implementation in IMPLEMENTATIONS:
        layer.implementation = implementation
        found.append(outcome(layer, x, context, mask, torch.ones(())))
        if implementation == "blockwise":
            weights, largest = (layer(x, context, mask, return_weights=kind)[1] for kind in (True, "max"))
            assert_close(weights.amax(-1), largest.flatten(2))
            sums = weights.sum(-1)
            assert_close(sums, (sums > 0.5).to(sums))  # 1, or 0 without any valid key
    for ours, theirs in zip(*found, strict=True):
        assert relative(ours, theirs) < 2e-5


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_match_finite_differences(group, implementation, float64, small_regions):
    other = FieldType(group, (1, 1))
    layer = sf.nn.Attention(
        FieldType(group, (1, 1)), other, num_heads=1, radius=1.7, falloff=0.5, implementation=implementation
    )
    x, context = layer.in_type.randn(1, (2,) * group.dim), other.randn(1, (3, 2, 1)[: group.dim])
    assert gradcheck(layer, (x.requires_grad_(), context.requires_grad_()), fast_mode=True)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_query_without_any_key_in_reach_gets_zeros(implementation):
    features = fields(SO2)
    layer = sf.nn.Attention(features, features, num_heads=2, radius=1.0, implementation=implementation)
    x, context = features.randn(1, 9).requires_grad_(), features.randn(1, 3)
    y = layer(x, context)
    y.square().sum().backward()
    assert not y[:, :, 0].any() and y[:, :, 4, 4].any()
    assert x.grad.isfinite().all()


def test_self_attention_has_the_same_parameters_with_and_without_a_radius(group):
    torch.manual_seed(0)
    layer = sf.nn.Attention(fields(group), num_heads=2)
    torch.manual_seed(0)
    local = sf.nn.Attention(fields(group), num_heads=2, radius=2.0)
    assert_close(local.state_dict(), layer.state_dict(), rtol=0, atol=0)
    torch.manual_seed(0)
    cross = sf.nn.Attention(fields(group), fields(group), num_heads=2)
    assert_close(cross.state_dict(), layer.state_dict(), rtol=0, atol=0)
    x = layer.in_type.randn(1, some_grid(group))
    assert_close(cross(x, x), layer(x))


def test_invalid_arguments_raise(group, unchecked):
    features, image = fields(group), FieldType.image(group, 2)
    attention = sf.nn.Attention
    with pytest.raises(ValueError, match=r"compared degree by degree, but 4x0\+2x1\+2x2 and 3x4 share no degree"):
        attention(features, FieldType(group, {4: 3}), num_heads=2)
    with pytest.raises(ValueError, match="Attention needs both types in one group"):
        attention(features, FieldType(SO3 if group is SO2 else SO2, (2,)), num_heads=2)
    with pytest.raises(ValueError, match="radius is a positive distance in the units of spacing"):
        attention(features, num_heads=2, radius=-1.0)
    with pytest.raises(ValueError, match=r"falloff is a distance from 0 to the radius 2.0, got 3.0"):
        attention(features, num_heads=2, radius=2.0, falloff=3.0)
    with pytest.raises(ValueError, match="falloff belongs to a radius"):
        attention(features, num_heads=2, falloff=1.0)
    with pytest.raises(ValueError, match="context_spacing belongs to a context"):
        attention(features, num_heads=2, context_spacing=(1.0,) * group.dim)
    with pytest.raises(ValueError, match=r"ratio of whole numbers up to 6 .* got 1:0.93\. Resample"):
        attention(features, image, num_heads=2, context_spacing=(0.93,) * group.dim)
    attention(features, image, num_heads=2, context_spacing=(0.93,) * group.dim, positional=False)
    layer, cross = attention(features, num_heads=2), attention(features, image, num_heads=2)
    x, context = features.randn(2, some_grid(group)), image.randn(2, some_grid(group))
    with pytest.raises(ValueError, match="is self-attention and takes no context; write Attention"):
        layer(x, context)
    with pytest.raises(ValueError, match=r"attends to a context of .*; call it with"):
        cross(x)
    with pytest.raises(ValueError, match="Attention to a context takes"):
        cross(x, x)
    with pytest.raises(ValueError, match="x and context are of one batch size, got 2 and 1"):
        cross(x, context[:1])
    with pytest.raises(ValueError, match="a mask is boolean, True for valid voxels"):
        cross(x, context, torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.slow
def test_memory_of_local_attention_is_linear_in_voxels(group):
    """Four times the voxels take about four times the memory; all pairs would take sixteen times."""
    peaks = []
    for factor in (1, 2):
        layer = sf.nn.Attention(fields(group), num_heads=2, radius=2.0)
        space = (64 * factor, 64 * factor) if group is SO2 else (16 * factor, 16 * factor, 8)
        x = layer.in_type.randn(1, space).requires_grad_()
        training = Contestant("attention", lambda layer=layer, x=x: layer(x), backward=True)
        training.run()
        peaks.append(peak_memory(training.run))
    assert peaks[1] < 5 * peaks[0]
