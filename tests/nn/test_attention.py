"""Attention against the paper's equations, in both implementations; masks, gradients, weights and memory."""

import copy
import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import oracles
import steerformer as sf
from measure import Contestant, peak_memory
from nn import attention_oracle
from nn.attention_inputs import core_inputs, fields, grid, some_mask
from steerformer import SO2, SO3, FieldType
from steerformer.nn import attention_tiles as tiles
from steerformer.nn.attention_core import attend, attention_weights

IMPLEMENTATIONS = ["dense", "blockwise"]
PHI = {
    "paper": lambda r, degree: r**-2,
    "soft": lambda r, degree: r**-2 * (1 - math.exp(-((r / 0.6 / degree) ** 4)) if degree else 1),
}
CASES = {
    "plain": {},
    "masked": {"masked": True},
    "total": {"scale": "total"},
    "paper-profile": {"radial": "paper"},
    "anisotropic": {"spacing": (1.0, 0.7, 2.5)},
    "windowed": {"key_window": 1.3, "masked": True},
    "normalized": {"qk_norm": 2.5, "scale": "total"},
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Tiles of a few queries, heads and keys, of unequal sizes."""

    def sizes(lattice, depth, heads, *, all_keys):
        return tiles.Sizes(2, 3, lattice[0].keys if all_keys else 2, 3 if heads > 2 else 1)

    monkeypatch.setattr(tiles, "_choose_sizes", sizes)


@pytest.mark.parametrize(
    ("group", "case"),
    [(SO2, case) for case in CASES]
    + [pytest.param(SO3, case, marks=[] if case == "masked" else pytest.mark.slow) for case in CASES],
    ids=str,
)
def test_attention_matches_the_paper(group, case, float64, small_blocks):
    """Outputs and gradients of both implementations, exact in float64, to rounding error in float32."""
    options = dict(CASES[case])
    masked = options.pop("masked", False)
    sides = torch.tensor(options.get("spacing", (1.0, 1.0, 1.0))[: group.dim])
    if "spacing" in options:
        options["spacing"] = tuple(sides.tolist())
    layer = sf.nn.Attention(fields(group), num_heads=2, **options)
    batch = 2 if masked else 1
    mask = some_mask(batch, grid(group)) if masked else None
    clones = {name: value.detach().clone().requires_grad_() for name, value in layer.named_parameters()}
    x = layer.in_type.randn(batch, grid(group)).requires_grad_()
    expected = attention_oracle.attention(
        layer.in_type,
        clones,
        x,
        num_heads=2,
        scale=options.get("scale", "paper"),
        phi=PHI[options.get("radial", "soft")],
        spacing=(sides / sides.log().mean().exp()).tolist(),
        mask=mask,
        window=oracles.window(grid(group), options["key_window"]) if "key_window" in options else None,
        qk_norm=options.get("qk_norm"),
    )
    towards = torch.randn_like(expected)
    (expected * towards).sum().backward()
    right = [expected.detach(), x.grad, *(clones[name].grad for name, _ in layer.named_parameters())]
    for implementation in IMPLEMENTATIONS:
        layer.implementation = implementation
        for value, exact in zip(outputs_and_gradients(layer, x, mask, towards), right, strict=True):
            assert_close(value, exact, rtol=0, atol=1e-10)
        single = copy.deepcopy(layer).float()
        for value, exact in zip(outputs_and_gradients(single, x.float(), mask, towards.float()), right, strict=True):
            assert relative(value, exact) < 2e-5, implementation


def outputs_and_gradients(layer, x, mask, towards):
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = layer(x, mask)
    (y * towards).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())]


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def test_both_implementations_agree_on_larger_grids(group):
    """Float32, several blocks of the default size, and all gradients."""
    space = (24, 17) if group is SO2 else (7, 6, 9)
    layer = sf.nn.Attention(fields(group), num_heads=2)
    found = {}
    for implementation in IMPLEMENTATIONS:
        twin = copy.deepcopy(layer)
        twin.implementation = implementation
        x = layer.in_type.randn(2, space, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = twin(x)
        y.square().sum().backward()
        found[implementation] = [y.detach(), x.grad, *(parameter.grad for parameter in twin.parameters())]
    for at_once, blocks in zip(*found.values(), strict=True):
        assert relative(blocks, at_once) < 2e-5


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_match_finite_differences(group, implementation, float64, small_blocks):
    inputs, table = core_inputs(group)
    for mask in (None, some_mask(2, (inputs[0].shape[-1],))):
        call = lambda *arguments, mask=mask: attend(*arguments, table, mask=mask, implementation=implementation)  # noqa: E731
        assert gradcheck(call, inputs, fast_mode=True)


def test_dense_has_second_derivatives(group, float64):
    inputs, table = core_inputs(group)
    for mask in (None, some_mask(2, (inputs[0].shape[-1],))):
        call = lambda *arguments, mask=mask: attend(*arguments, table, mask=mask, implementation="dense")  # noqa: E731
        assert gradgradcheck(call, inputs, fast_mode=True)
    out = attend(*inputs, table, implementation="dense")
    (gradient,) = torch.autograd.grad(out.square().sum(), inputs[0], create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), inputs[1])[0].any()


def test_blockwise_second_derivative_raises(group):
    inputs, table = core_inputs(group)
    out = attend(*inputs, table, implementation="blockwise")
    (gradient,) = torch.autograd.grad(out.square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match=r"first derivatives only; .* implementation='dense'"):
        gradient.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_zero_input_gives_zero_output_and_finite_gradients(group, implementation):
    """All scores are 0, where the absolute value has no derivative."""
    layer = sf.nn.Attention(fields(group), num_heads=2, positional=False, implementation=implementation)
    x = torch.zeros(1, layer.in_type.channels, *grid(group), requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert (y == 0).all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_huge_scores_select_one_voxel(group, implementation):
    (q, k, v, *maps), table = core_inputs(group)
    out = attend(1e5 * q, k, v, *maps, table, implementation=implementation)
    out.sum().backward()
    assert out.isfinite().all()
    assert q.grad.isfinite().all()
    assert attention_weights(1e5 * q, k, maps[0], table, only_largest=True).median() > 0.99


def test_tiny_scores_have_bounded_gradients(group):
    """Scores of 1e-24: their squares are 0 in float32."""
    found = []
    for implementation in IMPLEMENTATIONS:
        torch.manual_seed(0)
        (q, k, v, *maps), table = core_inputs(group)
        small = (1e-12 * q).detach().requires_grad_()
        attend(small, 1e-12 * k, v, *(0 * m for m in maps), table, implementation=implementation).sum().backward()
        found.append(small.grad.abs().max().item())
    assert max(found) < 1e-9


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masked_voxels_have_no_effect(group, implementation, small_blocks):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation)
    x = layer.in_type.randn(2, grid(group))
    mask = some_mask(2, grid(group))
    other = torch.where(mask[:, None], x, 100.0)
    seen, unseen = layer(x, mask), layer(other, mask)
    assert_close(seen[:, :, mask[1]][1], unseen[:, :, mask[1]][1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(layer(x), layer(other))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_fully_masked_sample_gives_zeros(group, implementation):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation)
    x = layer.in_type.randn(2, grid(group)).requires_grad_()
    mask = torch.ones(2, *grid(group), dtype=torch.bool)
    mask[1] = False
    y = layer(x, mask)
    y.sum().backward()
    assert (y[1] == 0).all()
    assert (y[0] != 0).any()
    assert x.grad.isfinite().all()


def test_return_weights(group, small_blocks):
    layer = sf.nn.Attention(fields(group), num_heads=2)
    x = layer.in_type.randn(2, grid(group))
    mask = some_mask(2, grid(group))
    y, weights = layer(x, mask, return_weights=True)
    tokens = math.prod(grid(group))
    assert weights.shape == (2, 2, tokens, tokens)
    assert_close(weights.sum(dim=-1), torch.ones(2, 2, tokens))
    assert (weights[:, :, :, ~mask[1].flatten()][1] == 0).all()
    same, largest = layer(x, mask, return_weights="max")
    assert torch.equal(same, y)
    assert largest.shape == (2, 2, *grid(group))
    assert_close(largest.flatten(2), weights.amax(dim=-1))


def test_return_weights_of_large_grid_raises_unless_max():
    layer = sf.nn.Attention(FieldType(SO2, (1,)), num_heads=1)
    x = layer.in_type.randn(1, (65, 64))
    with torch.no_grad(), pytest.raises(ValueError, match=r"at most 4096 tokens, got 4160; return_weights='max'"):
        layer(x, return_weights=True)
    with torch.no_grad():
        assert layer(x, return_weights="max")[1].shape == (1, 1, 65, 64)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_autocast_keeps_scores_precise(group, implementation):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation)
    x = layer.in_type.randn(2, grid(group)).requires_grad_()
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
        found.float().sum().backward()  # inside autocast, where torch would also round products of gradients
    assert found.dtype == torch.bfloat16
    assert relative(found.float(), expected) < 2e-2
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_half_precision_is_computed_in_float32(group, implementation):
    inputs, table = core_inputs(group)
    short = [value.detach().bfloat16() for value in inputs]
    long = attend(*(value.float() for value in short), table.bfloat16().float(), implementation=implementation)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attend(*short, table.bfloat16(), implementation=implementation)
    assert torch.equal(found, long.bfloat16())
    q, k, _, key_map, _ = short
    weights = attention_weights(q, k, key_map, table.bfloat16())
    assert weights.dtype == torch.float32
    assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_empty_batches_and_single_voxels(group, implementation):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation=implementation)
    for batch, size in itertools.product((0, 1), (1, 3)):
        x = layer.in_type.randn(batch, size).requires_grad_()
        y = layer(x)
        y.sum().backward()
        assert y.shape == x.shape
        assert y.isfinite().all(), (batch, size)


def test_hooks_and_replaced_linear_layers_are_called(group, float64):
    """Queries, keys and values come from one product, unless a linear layer has hooks or another class."""
    layer = sf.nn.Attention(fields(group), num_heads=2, scale="total")
    x = layer.in_type.randn(2, grid(group))
    expected, names = layer(x), ("query", "key", "value", "out")
    for name in names:
        seen = []
        handle = getattr(layer, name).register_forward_hook(lambda *arguments, seen=seen: seen.append(arguments[2]))
        assert_close(layer(x), expected)
        handle.remove()
        assert len(seen) == 1
        assert seen[0].shape == x.flatten(2).shape
    layer.value = torch.nn.Sequential(layer.value, torch.nn.Identity())
    assert_close(layer(x), expected)
    handle = layer.value[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    assert not torch.allclose(layer(x), expected)  # negative control


@pytest.mark.slow
def test_memory_is_linear_in_voxels(group):
    """Four times the voxels take about four times the memory; all pairs would take sixteen times."""
    peaks = [peak_of_training(group, factor) for factor in (1, 2)]
    assert peaks[1] < 5 * peaks[0]


def peak_of_training(group, factor):
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation="blockwise")
    space = (20 * factor, 20 * factor) if group is SO2 else (10 * factor, 10 * factor, 5)
    x = layer.in_type.randn(1, space).requires_grad_()
    training = Contestant("attention", lambda: layer(x), backward=True)
    training.run()  # warm up threads and tables
    return peak_memory(training.run)
