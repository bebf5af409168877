"""Cross-attention and local attention with real fields and real scores, against a double loop over voxels."""

import math
from functools import cache

import pytest
import torch
from scipy import integrate
from torch.autograd import gradgradcheck
from torch.testing import assert_close

import oracles
import steerformer as sf
from nn import attention_oracle
from nn.attention_inputs import some_mask
from nn.layers import worst_error
from steerformer import SO2, SO3, FieldType
from steerformer.nn import attention_regions as regions
from steerformer.nn import attention_tiles as tiles
from steerformer.nn.attention_core import attend, attention_weights
from steerformer.nn.offsets import OffsetAxis

IMPLEMENTATIONS = ["dense", "blockwise"]
COMPLEX, REAL = FieldType(SO2, (4, 2, 2)), FieldType(SO3, (4, 2, 2), real=True)
SCALARS, IMAGE = FieldType.image(SO2, 4), FieldType.image(SO2, 3)
VOLUME, CONTEXT = FieldType.image(SO3, 2), FieldType(SO3, "3x0+1x2+1x3 real")
CASES = {
    "cross-complex": (COMPLEX, FieldType(SO2, "3x0+1x3"), {}),
    "cross-signed": (COMPLEX, FieldType(SO2, "3x0+1x2"), {"score": "real", "coarse": True, "key_window": 1.3}),
    "cross-image": (COMPLEX, IMAGE, {"qk_norm": 2.5}),
    "cross-scalars": (SCALARS, IMAGE, {"coarse": True}),
    "cross-scalars-paper": (SCALARS, FieldType(SO2, (2, 1)), {"score": "paper"}),
    "cross-real": (REAL, CONTEXT, {"qk_norm": 2.5, "scale": "total"}),
    "cross-real-paper": (REAL, CONTEXT, {"score": "paper", "coarse": True}),
    "cross-real-from-complex": (REAL, FieldType(SO3, (2, 1)), {}),
    "local-complex": (COMPLEX, None, {"radius": 1.5}),
    "local-signed": (COMPLEX, None, {"score": "real", "radius": 2.3, "falloff": 1.5}),
    "local-scalars": (SCALARS, None, {"radius": 1.0, "qk_norm": 2.0}),
    "local-real": (REAL, None, {"radius": 1.5, "falloff": 0.9}),
    "local-real-paper": (REAL, None, {"score": "paper", "radius": 1.5}),
    "local-cross-image": (COMPLEX, IMAGE, {"score": "real", "radius": 1.9, "key_window": 1.3}),
    "local-cross-real": (REAL, VOLUME, {"radius": 1.9, "falloff": 1.0, "coarse": True}),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Tiles of a few queries, heads and keys, and boxes of two voxels a side."""

    def sizes(lattice, depth, heads, *, all_keys):
        return tiles.Sizes(2, 3, lattice[0].keys if all_keys else 2, 3 if heads > 2 else 1)

    monkeypatch.setattr(tiles, "_choose_sizes", sizes)
    monkeypatch.setattr(regions, "_sides", lambda lattice, heads, depth: (2,) * len(lattice))


def soft(r, degree):
    return r**-2 * (1 - math.exp(-((r / 0.6 / degree) ** 4)) if degree else 1)


def nearness(radius, falloff):
    """The weight of a key at a distance: 0 beyond the radius, an integral of the density 30 s^2 (1 - s)^2 within it."""

    def weight(distance):
        if not falloff or distance > radius:
            return float(distance <= radius * (1 + 1e-9))
        return integrate.quad(lambda s: 30 * s**2 * (1 - s) ** 2, 0.0, min((radius - distance) / falloff, 1.0))[0]

    return cache(weight)


def made(case):
    """The fields of a layer, one or two, a mask, the layer and the options of the double loop."""
    query_type, key_type, options = CASES[case]
    options = dict(options)
    dim = query_type.group.dim
    sides = (2.0,) * dim if options.pop("coarse", False) else (1.0,) * dim
    spacings = {} if key_type is None else {"context_spacing": sides}
    layer = sf.nn.Attention(query_type, key_type, num_heads=2, **spacings, **options)
    x = query_type.randn(2, (3, 3) if dim == 2 else (2, 3, 1))
    context = x if key_type is None else key_type.randn(2, (4, 2) if dim == 2 else (1, 2, 3))
    mask = some_mask(2, context.shape[2:])
    width = options.pop("key_window", None)
    window = oracles.window(tuple(context.shape[2:]), width) if width else None
    weight = nearness(options.pop("radius", math.inf), options.pop("falloff", 0.0))
    options = {"scale": "paper", **options, **spacings, "window": window, "distance_weight": weight}
    options |= {"phi": soft, "spacing": (1.0,) * dim, "num_heads": 2, "score": layer.score, "context_type": key_type}
    return [x] if key_type is None else [x, context], mask, layer, options


@pytest.mark.parametrize("case", CASES)
def test_attention_matches_the_definition(case, float64, small_blocks):
    """Outputs and all gradients of both implementations."""
    fields, mask, layer, options = made(case)
    assert layer.score == CASES[case][2].get("score", "real" if layer.in_type.real else "paper")
    fields, parameters = [field.requires_grad_() for field in fields], dict(layer.named_parameters())
    x, context = (*fields, None)[:2]
    expected = attention_oracle.attention(layer.in_type, parameters, x, mask=mask, context=context, **options)
    towards = torch.randn_like(expected)

    def gradients(out):
        return torch.autograd.grad((out * towards).sum(), [*fields, *parameters.values()])

    right = [expected, *gradients(expected)]
    for layer.implementation in IMPLEMENTATIONS:
        found = layer(*fields, mask=mask)
        for value, exact in zip([found, *gradients(found)], right, strict=True):
            assert_close(value, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_weights_add_up_to_one(case, float64, small_blocks):
    """Or are all 0 where no valid key is within reach; invalid keys have none."""
    fields, mask, layer, _ = made(case)
    weights, largest = (layer(*fields, mask=mask, return_weights=kind)[1] for kind in (True, "max"))
    sums = weights.sum(dim=-1)
    assert_close(sums, (sums > 0.5).to(sums))
    assert not (weights * ~mask.flatten(1)[:, None, None]).any()
    assert_close(weights.amax(dim=-1).unflatten(2, fields[0].shape[2:]), largest)


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith(("cross", "local-cross"))])
def test_cross_attention_commutes_with_rotations_of_both_fields(case, float64):
    (x, context), _, layer, _ = made(case)
    R = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    R = R if layer.in_type.group is SO2 else torch.block_diag(torch.ones(1, 1), R)
    expected = layer.in_type.rotate(layer(x, context), R)
    rotated = layer.in_type.rotate(x, R)
    assert_close(layer(rotated, layer.context_type.rotate(context, R)), expected, rtol=0, atol=1e-12)
    cube = layer.context_type.randn(2, 3)
    expected = layer.in_type.rotate(layer(x, cube), R)
    assert (layer(rotated, cube) - expected).abs().max() > 1e-3  # negative control: only one field is rotated


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("local") and "cross" not in name])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_local_attention_is_equivariant(case, implementation):
    layer = made(case)[2]
    layer.implementation = implementation
    assert worst_error(layer, 3) < 1e-10
    assert worst_error(layer, 3, dtype=torch.float32) < 1e-5


@pytest.mark.parametrize("case", ["local-real", "local-signed", "cross-real", "cross-real-from-complex"])
def test_both_implementations_agree_on_larger_grids(case):
    """Float32, several blocks of the default size."""
    layer = made(case)[2]
    x = layer.in_type.randn(1, (24, 17) if layer.in_type.group is SO2 else (7, 6, 9))
    given = [x] if layer.context_type is None else [x, layer.context_type.randn(1, (5, 8, 6))]
    found = []
    for layer.implementation in IMPLEMENTATIONS:
        out = layer(*given)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), list(layer.parameters()))])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() < 2e-5 * one.norm()


@pytest.mark.parametrize("score", ["paper", "real"])
def test_dense_has_second_derivatives_with_a_context_and_a_radius(score, float64):
    lattice = (OffsetAxis(3, 2, 1, 2), OffsetAxis(2, 3))
    lengths = [axis.length for axis in lattice]
    q, k, v = (torch.randn(1, 2, 3, tokens, requires_grad=True) for tokens in (6, 6, 6))
    maps = [torch.randn(2, 3, 2, requires_grad=True) for _ in range(2)]
    table, falloff = torch.randn(*lengths, 2), torch.randn(*lengths)
    falloff[0] = -math.inf
    options = {"lattice": lattice, "falloff": falloff, "score": score, "real": True, "implementation": "dense"}
    assert gradgradcheck(lambda *inputs: attend(*inputs, table, **options), (q, k, v, *maps), fast_mode=True)


def test_real_scores_within_a_radius_have_a_sign(float64):
    """Weights of -q are of the opposite order for real scores, among the keys within reach."""
    lattice = tuple(OffsetAxis(4, 4) for _ in range(2))
    q, k = (torch.randn(1, 1, 3, 16) for _ in range(2))
    table, falloff = torch.zeros(7, 7, 0), torch.zeros(7, 7)
    falloff[:2] = -math.inf
    options = {"lattice": lattice, "falloff": falloff, "score": "real", "real": True}
    one, other = (attention_weights(sign * q, k, q.new_zeros(1, 3, 0), table, **options) for sign in (1, -1))
    product = one * other  # e^s e^-s, up to the normalization of each query, or 0
    assert_close(product, (product > 0) * product.amax(dim=-1, keepdim=True))
    assert (product == 0).any()
