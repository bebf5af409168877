"""The layers among torch's own machinery: containers, hooks, export, autocast, odd batches, seeds."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from nn.layers import (
    LAYERS,
    POINTWISE,
    features,
    gapped,
    image,
    in_space,
    input_it_takes,
    inputs_it_takes,
    randomized,
    small_net,
    worst_error,
)
from steerformer.testing import equivariance_error

CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def noise(group, batch=2, size=8):
    return image(group).randn(batch, in_space(group, size), generator=torch.Generator().manual_seed(1))


def test_the_example_of_the_readme_passes_its_own_check():
    volume, fields = sf.FieldType.image(sf.SO3, 4), sf.FieldType(sf.SO3, (8, 4, 2))
    net = nn.Sequential(
        sf.nn.Conv(volume, fields, kernel_size=5), sf.nn.NormReLU(fields), sf.nn.AvgPool(fields, kernel_size=2)
    )
    sf.testing.assert_equivariant(net, size=7, batch=1)


def test_a_whole_net_is_invariant(group):
    net = randomized(small_net(group)).double().eval()
    x = noise(group).double()
    for R in group.grid_rotations():
        assert_close(net(image(group).rotate(x, R)), net(x), rtol=0, atol=1e-10)


def test_a_sequence_trains(group):
    net = small_net(group).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x, target = noise(group, batch=6), torch.tensor([0, 1, 2] * 2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.7 * losses[0]


def test_hooks_see_what_passes(group):
    net, seen = small_net(group).eval(), []
    for layer in net:
        layer.register_forward_hook(lambda layer, inputs, output: seen.append((layer, inputs[0], output)))
    net[0].register_forward_pre_hook(lambda layer, inputs: (2 * inputs[0],))
    net(noise(group))
    assert [layer for layer, _, _ in seen] == list(net)
    for layer, x, y in seen:
        if hasattr(layer, "in_type"):
            assert x.shape[1] == layer.in_type.channels
            assert y.shape[1] == layer.out_type.channels
    assert_close(seen[0][1], 2 * noise(group))


def test_exported_in_eval_mode_it_does_the_same(group, unchecked):
    net = randomized(small_net(group)).eval()
    with torch.no_grad():
        program = torch.export.export(net, (noise(group),))
        assert_close(program.module()(noise(group, batch=2)), net(noise(group)), rtol=1e-4, atol=1e-5)
    parameters = {name for name, _ in net.named_parameters()}
    assert {name for name in program.state_dict if name in parameters} == parameters


def test_export_after_the_kernel_was_cached_still_depends_on_the_weights(group, unchecked):
    """A kernel from the cache would be baked in as a constant."""
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval()
    x = conv.in_type.randn(1, 4)
    with torch.no_grad():
        expected = conv(x)
        program = torch.export.export(conv, (x,)).module()
        assert_close(program(x), expected, rtol=1e-4, atol=1e-5)
        program.load_state_dict({"weight": 2 * conv.weight}, strict=False)
        assert_close(program(x), 2 * expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", ["batch", "space"])
def test_export_leaves_batch_and_size_open(group, dynamic, unchecked):
    """Size where no layer must know whether it is odd."""
    field_type = features(group)
    net = nn.Sequential(sf.nn.Conv(image(group), field_type, kernel_size=3), sf.nn.NormReLU(field_type)).eval()
    axes = [0] if dynamic == "batch" else list(range(2, 2 + group.dim))
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in axes},)
    with torch.no_grad():
        program = torch.export.export(net, (noise(group, batch=2, size=6),), dynamic_shapes=shapes).module()
        x = noise(group, batch=5, size=6) if dynamic == "batch" else noise(group, batch=2, size=9)
        assert_close(program(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"scale": 2}, {"scale": 1.5}, {"scale": 0.5}, {"size": 5}], ids=str)
def test_resampling_can_be_exported_for_any_size(group, options, unchecked):
    layer = sf.nn.Resample(features(group), **options)
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in range(2, 2 + group.dim)},)
    program = torch.export.export(layer, (features(group).randn(2, 6),), dynamic_shapes=shapes).module()
    for size in (5, 8):
        x = features(group).randn(2, size)
        assert_close(program(x), layer(x))


def test_resampling_to_the_size_of_another_field_can_be_exported(group, unchecked):
    class Upwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.resample = sf.nn.Resample(features(group))

        def forward(self, coarse, fine):
            return self.resample(coarse, fine.shape[2:])

    coarse, fine = features(group).randn(2, 3), features(group).randn(2, 6)
    shapes = ({}, {axis: torch.export.Dim.DYNAMIC for axis in range(2, 2 + group.dim)})
    program = torch.export.export(Upwards(), (coarse, fine), dynamic_shapes=shapes).module()
    assert_close(program(coarse, features(group).randn(2, 7)), Upwards()(coarse, features(group).randn(2, 7)))


def test_autocast_to_bfloat16_stays_nearly_equivariant(group, record_property):
    field_type = features(group)
    net = nn.Sequential(
        sf.nn.Conv(image(group), field_type, kernel_size=5),
        sf.nn.BatchNorm(field_type),
        sf.nn.NormReLU(field_type, bias=-0.1),
        sf.nn.AvgPool(field_type, kernel_size=2),
        sf.nn.Conv(field_type, gapped(group), kernel_size=3),
        sf.nn.LayerNorm(gapped(group)),
        sf.nn.TensorProduct(gapped(group), field_type),
    ).eval()

    def in_bfloat16(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x).float()

    x = noise(group, size=7)
    errors = [
        equivariance_error(in_bfloat16, R, x=x, in_type=image(group), out_type=field_type).total
        for R in group.grid_rotations()
    ]
    record_property("equivariance error in bfloat16", max(errors))
    print(f"equivariance error in bfloat16: {max(errors):.1e}")
    assert max(errors) < 5e-2
    with torch.no_grad():
        assert_close(in_bfloat16(x), net(x), rtol=0.1, atol=0.1 * net(x).abs().max().item())


@pytest.mark.parametrize("make", LAYERS)
def test_autocast_trains_every_layer(group, make):
    layer = randomized(make(group)).train()
    x = input_it_takes(layer).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.float().square().mean().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("make", POINTWISE)
def test_float16_does_what_float32_does(group, make):
    layer = randomized(make(group)).eval()
    x = layer.in_type.randn(2, in_space(group, 5))
    with torch.no_grad():
        wide, narrow = layer(x), copy.deepcopy(layer).half()(x.half())
    assert_close(narrow.float(), wide, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer_copies_saves_loads_and_changes_precision(group, make):
    layer = randomized(make(group)).eval()
    twin = make(group).eval()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    for x in inputs_it_takes(layer):
        y = layer(x)
        assert torch.equal(copy.deepcopy(layer)(x), y)
        assert torch.equal(twin(x), y)
        double = copy.deepcopy(layer).double()(x.double())
        assert double.dtype == torch.float64
        assert_close(y.double(), double, rtol=1e-3, atol=1e-4)
        last = x.contiguous(memory_format=CHANNELS_LAST[group.dim])
        assert_close(layer(last), y, rtol=1e-4, atol=1e-5)
        assert_close(layer(x[:1]), y[:1], rtol=1e-4, atol=1e-5)
        assert layer(x[:0]).shape == (0, *y.shape[1:])
        assert layer(torch.zeros_like(x)).isfinite().all()


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer_prints_its_types(group, make):
    layer = make(group)
    types = f"{layer.in_type} -> {layer.out_type}" if layer.in_type != layer.out_type else str(layer.in_type)
    assert layer.extra_repr().startswith(types)


@pytest.mark.parametrize("batch", [0, 1])
def test_a_net_takes_batches_of_none_and_of_one(group, batch):
    net = small_net(group)
    for mode in (True, False):
        y = net.train(mode)(noise(group, batch=batch))
        assert y.shape == (batch, 3)
        assert y.isfinite().all()
        y.sum().backward()


def test_the_same_seed_makes_the_same_net(group):
    nets = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        nets.append(small_net(group).state_dict())
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
    assert not torch.equal(nets[0]["0.weight"], nets[2]["0.weight"])


def test_no_parameter_depends_on_the_size_of_the_grid(group):
    net = nn.Sequential(*list(small_net(group))[:13])
    before = {name: value.shape for name, value in net.state_dict().items()}
    net.in_type, net.out_type = image(group), gapped(group)
    for size in (4, 8, (6, 8, 4)):
        assert worst_error(net.eval(), size) < 1e-8
    assert {name: value.shape for name, value in net.state_dict().items()} == before
