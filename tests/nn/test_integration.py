"""Layers with torch's containers, hooks, export, autocast, unusual batch sizes and seeds."""

import copy
import io
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import steerformer as sf
from nn.layers import (
    LAYERS,
    POINTWISE,
    VARIANTS,
    features,
    gapped,
    image,
    in_space,
    randomized,
    small_net,
    supported_input,
    worst_error,
)
from steerformer import SO2, FieldType
from steerformer.testing import equivariance_error

CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def noise(group, batch=2, size=8):
    return image(group).randn(batch, in_space(group, size), generator=torch.Generator().manual_seed(1))


def test_readme_example_is_equivariant():
    volume, fields = sf.FieldType.image(sf.SO3, 4), sf.FieldType(sf.SO3, (8, 4, 2))
    net = nn.Sequential(
        sf.nn.Conv(volume, fields, kernel_size=5), sf.nn.NormReLU(fields), sf.nn.AvgPool(fields, kernel_size=2)
    )
    sf.testing.assert_equivariant(net, size=7, batch=1)


def test_network_is_invariant(group):
    net = randomized(small_net(group)).double().eval()
    x = noise(group, batch=1).double()
    rotated = torch.cat([image(group).rotate(x, R) for R in group.grid_rotations()])
    with torch.no_grad():
        assert_close(net(rotated), net(x).expand(len(rotated), -1), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_sequential_trains(group, unchecked):
    net = small_net(group).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-2)
    x, target = noise(group, batch=6), torch.tensor([0, 1, 2] * 2)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.7 * losses[0]


def test_hooks_see_inputs_and_outputs(group):
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


@pytest.mark.slow
def test_exported_network_gives_the_same_output(group, unchecked):
    few = FieldType(group, (1, 1))
    net = randomized(small_net(group, few, few)).eval()
    with torch.no_grad():
        program = torch.export.export(net, (noise(group),))
        assert_close(program.module()(noise(group, batch=2)), net(noise(group)), rtol=1e-4, atol=1e-5)
    parameters = {name for name, _ in net.named_parameters()}
    assert {name for name in program.state_dict if name in parameters} == parameters


@pytest.mark.slow
def test_export_with_cached_kernel_still_depends_on_weights(group, unchecked):
    """Export must not store the cached kernel as a constant."""
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3).eval()
    x = conv.in_type.randn(1, 4)
    with torch.no_grad():
        expected = conv(x)
        program = torch.export.export(conv, (x,)).module()
        assert_close(program(x), expected, rtol=1e-4, atol=1e-5)
        program.load_state_dict({"weight": 2 * conv.weight}, strict=False)
        assert_close(program(x), 2 * expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_export_with_dynamic_batch_and_size(group, unchecked):
    """Dynamic size only for layers that do not depend on its parity."""
    field_type = FieldType(group, (1, 1))
    net = nn.Sequential(sf.nn.Conv(image(group), field_type, kernel_size=3), sf.nn.NormReLU(field_type)).eval()
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in (0, *range(2, 2 + group.dim))},)
    with torch.no_grad():
        program = torch.export.export(net, (noise(group, batch=2, size=6),), dynamic_shapes=shapes).module()
        for batch, size in ((5, 6), (2, 9), (3, 5)):
            x = noise(group, batch=batch, size=size)
            assert_close(program(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_resample_exports_with_dynamic_size(group, unchecked):
    field_type = FieldType(group, (1, 1))
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in range(2, 2 + group.dim)},)
    for options in ({"scale": 2}, {"scale": 1.5}, {"scale": 0.5}, {"size": 5}):
        layer = sf.nn.Resample(field_type, **options)
        program = torch.export.export(layer, (field_type.randn(2, 6),), dynamic_shapes=shapes).module()
        for size in (5, 8):
            x = field_type.randn(2, size)
            assert_close(program(x), layer(x), msg=lambda text, options=options: f"{options}: {text}")


@pytest.mark.slow
def test_resample_to_size_of_another_field_exports(group, unchecked):
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


def test_autocast_to_bfloat16_is_nearly_equivariant(group, record_property, unchecked):
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


@pytest.mark.slow
@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_autocast_trains_every_layer(group, make):
    layer = randomized(make(group)).train()
    x = supported_input(layer).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.float().square().mean().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("make", POINTWISE)
def test_float16_matches_float32(group, make):
    layer = randomized(make(group)).eval()
    x = layer.in_type.randn(2, in_space(group, 5))
    with torch.no_grad():
        wide, narrow = layer(x), copy.deepcopy(layer).half()(x.half())
    assert_close(narrow.float(), wide, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_every_layer_copies_saves_loads_and_changes_dtype(group, make):
    layer = randomized(make(group)).eval()
    twin = make(group).eval()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    x = supported_input(layer)
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


def test_every_layer_prints_its_types(group):
    for parameter in LAYERS:
        layer = parameter.values[0](group)
        types = f"{layer.in_type} -> {layer.out_type}" if layer.in_type != layer.out_type else str(layer.in_type)
        assert layer.extra_repr().startswith(types), parameter.id


def test_network_accepts_batches_of_0_and_1(group):
    net = small_net(group)
    for batch, mode in product((0, 1), (True, False)):
        y = net.train(mode)(noise(group, batch=batch))
        assert y.shape == (batch, 3)
        assert y.isfinite().all()
        y.sum().backward()


def test_same_seed_gives_same_network(group):
    nets = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        nets.append(small_net(group).state_dict())
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
    assert not torch.equal(nets[0]["0.weight"], nets[2]["0.weight"])


def test_parameters_do_not_depend_on_grid_size(group):
    net = nn.Sequential(*list(small_net(group))[:13])
    before = {name: value.shape for name, value in net.state_dict().items()}
    net.in_type, net.out_type = image(group), gapped(group)
    for size in (4, 8, (6, 8)) if group is SO2 else (4, (6, 4, 4)):
        assert worst_error(net.eval(), size) < 1e-8, size
    assert {name: value.shape for name, value in net.state_dict().items()} == before
