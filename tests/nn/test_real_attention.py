"""Attention with real scores and real fields: the definition, torch's own attention, gradients, initialization."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

import oracles
import steerformer as sf
from nn import attention_oracle
from nn.attention_inputs import grid, some_mask
from nn.layers import worst_error
from steerformer import SO2, SO3, FieldType
from steerformer.nn import attention_blockwise as blockwise
from steerformer.nn import attention_dense as dense
from steerformer.nn import attention_tiles as tiles
from steerformer.nn.attention_core import attend, attention_weights
from steerformer.nn.offsets import lattice_within, to_integers

IMPLEMENTATIONS = ["dense", "blockwise"]
COMPLEX, REAL = FieldType(SO2, (4, 2, 2)), FieldType(SO3, (4, 2, 2), real=True)
SCALARS = FieldType.image(SO2, 4)
CASES = {
    "complex": (COMPLEX, {"score": "real"}),
    "complex-windowed": (COMPLEX, {"score": "real", "key_window": 1.3}),
    "scalars": (SCALARS, {}),
    "scalars-paper": (SCALARS, {"score": "paper"}),
    "real": (REAL, {"qk_norm": 2.5, "scale": "total"}),
    "real-paper": (REAL, {"score": "paper"}),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Tiles of a few queries, heads and keys, of unequal sizes."""

    def sizes(lattice, depth, heads, *, all_keys):
        return tiles.Sizes(2, 3, lattice[0].keys if all_keys else 2, 3 if heads > 2 else 1)

    monkeypatch.setattr(tiles, "_choose_sizes", sizes)


def soft(r, degree):
    return r**-2 * (1 - math.exp(-((r / 0.6 / degree) ** 4)) if degree else 1)


def outputs_and_gradients(layer, x, mask, towards):
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = layer(x, mask)
    (y * towards).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize("case", CASES)
def test_attention_matches_the_definition(case, float64, small_blocks):
    """Outputs and gradients of both implementations, against a double loop over voxels."""
    field_type, options = CASES[case]
    space = grid(field_type.group)
    layer = sf.nn.Attention(field_type, num_heads=2, **options)
    assert layer.score == options.get("score", "real")
    mask = some_mask(2, space)
    clones = {name: value.detach().clone().requires_grad_() for name, value in layer.named_parameters()}
    x = field_type.randn(2, space).requires_grad_()
    expected = attention_oracle.attention(
        field_type,
        clones,
        x,
        num_heads=2,
        scale=options.get("scale", "paper"),
        phi=soft,
        spacing=(1.0,) * field_type.group.dim,
        mask=mask,
        window=oracles.window(space, 1.3) if "key_window" in options else None,
        qk_norm=options.get("qk_norm"),
        score=layer.score,
    )
    towards = torch.randn_like(expected)
    (expected * towards).sum().backward()
    right = [expected.detach(), x.grad, *(clones[name].grad for name, _ in layer.named_parameters())]
    for layer.implementation in IMPLEMENTATIONS:
        for value, exact in zip(outputs_and_gradients(layer, x, mask, towards), right, strict=True):
            assert_close(value, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("field_type", [SCALARS, FieldType(SO3, (4, 2), real=True), FieldType(SO3, (4, 2))], ids=str)
def test_real_scores_without_positions_are_torchs_attention(field_type, implementation, float64):
    """Over all components of a head, real and imaginary parts alike: the real part of a product is that of both."""
    layer = sf.nn.Attention(
        field_type, num_heads=2, positional=False, score="real", scale="total", implementation=implementation
    )
    for weight in layer.out.weights:
        weight.data.zero_()[0] = torch.eye(weight.shape[1])
    x = field_type.randn(2, 3)

    def heads(y):  # batch, head, token, component
        pieces = [piece.flatten(4).chunk(2, dim=3) for piece in field_type.split(y)]
        return torch.stack([torch.cat([p[head].flatten(1, 3) for p in pieces], dim=1) for head in range(2)], dim=1).mT

    q, k, v = (heads(linear(x)) for linear in (layer.query, layer.key, layer.value))
    scale = 1 / math.sqrt(field_type.channels / field_type.parts / 2)
    assert_close(heads(layer(x)), F.scaled_dot_product_attention(q, k, v, scale=scale), rtol=0, atol=1e-12)


def core_inputs(field_type):
    layer = sf.nn.Attention(field_type, num_heads=2)
    space = grid(field_type.group)
    shape = (2, 2, field_type.channels // 2)
    q, k, v = (torch.randn(*shape, math.prod(space), requires_grad=True) for _ in range(3))
    rows = layer.key_position.matrix().shape[1]
    maps = [torch.randn(*shape[1:], rows, requires_grad=True) for _ in range(2)]
    return (q, k, v, *maps), layer.key_position.table(space)


@pytest.mark.parametrize("score", ["real", "paper"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_match_finite_differences(score, implementation, float64, small_blocks):
    inputs, table = core_inputs(FieldType(SO3, (2, 2), real=True))
    options = {"implementation": implementation, "score": score, "real": True}
    for mask in (None, some_mask(2, (inputs[0].shape[-1],))):
        call = lambda *arguments, mask=mask: attend(*arguments, table, mask=mask, **options)  # noqa: E731
        assert gradcheck(call, inputs, fast_mode=True)
        if implementation == "dense":
            assert gradgradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize(("field_type", "score"), [(COMPLEX, "real"), (REAL, "real"), (REAL, "paper")], ids=str)
def test_both_implementations_agree_on_larger_grids(field_type, score):
    """Float32, several blocks of the default size, all gradients and the weights."""
    space = (24, 17) if field_type.group is SO2 else (7, 6, 9)
    layer = sf.nn.Attention(field_type, num_heads=2, score=score)
    x = field_type.randn(1, space)
    towards = torch.randn_like(x)
    found = []
    for layer.implementation in IMPLEMENTATIONS:
        found.append(outputs_and_gradients(layer, x, None, towards))
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() < 2e-5 * one.norm()
    _, weights = layer(x, return_weights=True)
    _, largest = layer(x, return_weights="max")
    assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    assert_close(weights.amax(dim=-1).unflatten(2, space), largest)


def test_real_scores_have_a_sign_and_the_papers_have_none(float64):
    """Weights of -q are those of q for the paper's scores, and of the opposite order for real ones."""
    (q, k, _, key_map, _), table = core_inputs(REAL)
    for score in ("paper", "real"):
        one, other = (attention_weights(sign * q, k, key_map, table, score=score, real=True) for sign in (1, -1))
        if score == "paper":
            assert_close(one, other)
        else:
            product = one * other  # e^s e^-s, up to the normalization of each query
            assert_close(product / product[..., :1], torch.ones_like(product))
            assert (one - other).abs().max() > 0.1


@pytest.mark.parametrize("scale", ["paper", "total"])
@pytest.mark.parametrize(("field_type", "score"), [(REAL, "real"), (REAL, "paper"), (COMPLEX, "real")], ids=str)
def test_scores_have_unit_variance_at_initialization(field_type, score, scale):
    wide = FieldType(field_type.group, [16 * n for n in field_type.multiplicities], real=field_type.real)
    layer = sf.nn.Attention(wide, num_heads=2, score=score, scale=scale, positional=False)
    q, k, _ = layer._queries_keys_values(x := wide.randn(4, 4).flatten(2), x)
    assert (q.mT @ k).square().mean().item() == pytest.approx(1, rel=0.15)


def test_real_scores_of_complex_fields_are_equivariant(group):
    layer = sf.nn.Attention(FieldType(group, (2, 2)), num_heads=2, score="real")
    assert worst_error(layer, 3) < 1e-10


def test_unequivariant_scores_are_detected():
    """The control: scores from some orders of a vector only."""
    layer = sf.nn.Attention(FieldType(SO3, "2x1", real=True), num_heads=2, positional=False).double()
    assert worst_error(layer, 3) < 1e-10
    layer._factors[:1] = 0
    layer.register_forward_hook(lambda *_: None)
    layer.query.register_forward_hook(lambda *_: None)  # the factors are then applied as they are
    assert worst_error(layer, 3) > 1e-3


def test_unknown_scores_raise(unchecked):
    with pytest.raises(ValueError, match="score is 'paper' or 'real', got 'signed'"):
        sf.nn.Attention(COMPLEX, num_heads=1, score="signed")
    inputs, table = core_inputs(COMPLEX)
    with pytest.raises(ValueError, match="score is 'paper' or 'real', got 'abs'"):
        attend(*inputs, table, score="abs")


@pytest.mark.slow
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("local", [True, False])
def test_custom_operators_pass_opcheck(signed, local):
    (q, k, v, *_), table = core_inputs(FieldType(SO3, (2, 2), real=True))
    lattice = to_integers(lattice_within(grid(SO3)))
    rows = torch.randn(*q.shape[:2], table.shape[-1], q.shape[-1], requires_grad=True)
    bias = torch.where(some_mask(2, (q.shape[-1],)), 0.5, -math.inf)
    falloff = torch.randn(table.shape[:-1]) if local else None
    for operator in (blockwise.attend_blocks, dense.attend_at_once):
        opcheck(operator, (q, k, v, rows, table, bias, falloff, lattice, 1, signed))
