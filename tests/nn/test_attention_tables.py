"""Tables of positions shared by attention layers, the custom operators of attention, and its invalid arguments."""

import itertools
import math
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.testing import assert_close

import steerformer as sf
from nn.attention_inputs import core_inputs, fields, grid, some_mask
from steerformer import SO2
from steerformer.nn import attention_blockwise as blockwise
from steerformer.nn import attention_dense as dense
from steerformer.nn.attention_core import attend
from steerformer.nn.offsets import lattice_within, to_integers
from steerformer.nn.position import offset_table


def test_tables_are_shared_and_not_in_state_dict(group):
    first, second = (sf.nn.Attention(fields(group), num_heads=2) for _ in range(2))
    space = grid(group)
    assert first.key_position.table(space) is second.value_position.table(space)
    first(first.in_type.randn(1, space))
    assert set(first.state_dict()) == {name for name, _ in first.named_parameters()}
    second.load_state_dict(first.state_dict())
    x = first.in_type.randn(1, (6,) * group.dim)
    assert torch.equal(first(x), second(x))
    assert torch.equal(pickle.loads(pickle.dumps(first))(x), second(x))


def test_double_uses_float64_tables(group):
    """The float64 table must not be a cast of the float32 table that was built first."""
    layer = sf.nn.Attention(fields(group), num_heads=2)
    x = layer.in_type.randn(1, grid(group), dtype=torch.float64)
    layer(x.float())
    layer.double()
    R = group.grid_rotations()[1]
    rotated = layer(layer.in_type.rotate(x, R))
    assert_close(rotated, layer.in_type.rotate(layer(x), R), rtol=0, atol=1e-13)
    table = layer.key_position.table((4,) * group.dim)
    assert table.dtype == torch.float64
    assert (table != table.float().double()).any()


def test_table_built_in_any_mode_works_in_training(group):
    """Grids that no other test uses, because the first call builds the shared table."""
    layer = sf.nn.Attention(fields(group), num_heads=2, implementation="blockwise")
    sizes = [(4, 9), (4, 10), (4, 11)] if group is SO2 else [(1, 4, 9), (1, 4, 10), (1, 4, 11)]
    inputs = [layer.in_type.randn(1, size) for size in sizes]
    with torch.inference_mode():
        layer(inputs[0])
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer.key_position.table(sizes[1])
    dense = sf.nn.Attention(fields(group), num_heads=2, implementation="dense")
    torch.func.grad(lambda x: dense(x).sum())(inputs[2])
    for x in inputs:
        layer(x).sum().backward()
    assert type(layer.key_position.table(sizes[1])) is torch.Tensor


@pytest.mark.slow
def test_custom_operators_pass_opcheck(group):
    """Shapes, strides and gradients: torch's own checks for custom operators."""
    (q, k, v, *_), table = core_inputs(group)
    lattice = to_integers(lattice_within(grid(group)))
    rows = torch.randn(*q.shape[:2], 2 * table.shape[-1], q.shape[-1], requires_grad=True)
    opcheck(blockwise.attend_blocks, (q, k, v, rows, table, None, None, lattice))
    bias = torch.where(some_mask(2, (q.shape[-1],)), 0.5, -math.inf)
    falloff = torch.randn(table.shape[:-1])
    opcheck(blockwise.attend_blocks, (q, k, v, rows, table, bias, falloff, lattice))
    outputs = [x.detach() for x in blockwise.attend_blocks(q, k, v, rows, table, None, None, lattice)]
    tensors = [x.detach() for x in (*outputs[:2], q, k, v, rows, table)]
    opcheck(blockwise.attend_blocks_backward, (*tensors, None, None, lattice, *outputs))
    opcheck(dense.attend_at_once, (q, k, v, rows, table, None, None, lattice))
    opcheck(dense.attend_at_once, (q, k, v, rows, table, bias, falloff, lattice))
    outputs = [x.detach() for x in dense.attend_at_once(q, k, v, rows, table, None, None, lattice)]
    opcheck(dense.attend_at_once_backward, (*tensors[:5], table, lattice, *outputs))
    arguments = (group.name, [0, 1], "soft", lattice, [1.0] * group.dim, table.shape[-1], torch.zeros(1))
    opcheck(offset_table, arguments)


def test_dense_matches_plain_expressions(group, float64):
    """The operator and the expressions that its second derivatives and torch.func use."""
    (q, k, v, *_), table = core_inputs(group)
    rows = torch.randn(*q.shape[:2], 2 * table.shape[-1], q.shape[-1], requires_grad=True)
    inputs = (q, k, v, rows)
    lattice = to_integers(lattice_within(grid(group)))
    falloff = torch.randn(table.shape[:-1])
    falloff[0] = -math.inf
    bias = torch.where(some_mask(2, (q.shape[-1],)), torch.randn(q.shape[-1]), -math.inf)
    for biases in itertools.product((None, bias), (None, falloff)):
        ours, plain = (f(*inputs, table, *biases, lattice)[:2] for f in (dense.attend_at_once, dense.attend_plain))
        assert_close(ours, plain)
        for used in (slice(0, 2), slice(0, 1), slice(1, 2)):  # both outputs, or only one of them
            towards = [torch.randn_like(x) for x in plain[used]]
            gradients = [
                torch.autograd.grad(outputs[used], inputs, towards, retain_graph=True, materialize_grads=True)
                for outputs in (ours, plain)
            ]
            assert_close(*gradients)


def test_invalid_arguments_raise(group, unchecked):
    attention = sf.nn.Attention
    with pytest.raises(ValueError, match=r"divide the copies of every degree of 4x0\+2x1\+2x2, got 4; possible: 1, 2"):
        attention(fields(group), num_heads=4)
    with pytest.raises(ValueError, match="num_heads is an integer >= 1, got 0"):
        attention(fields(group), num_heads=0)
    with pytest.raises(ValueError, match="scale is 'paper' or 'total', got 'none'"):
        attention(fields(group), num_heads=2, scale="none")
    with pytest.raises(ValueError, match="implementation is 'auto', 'dense' or 'blockwise', got 'flash'"):
        attention(fields(group), num_heads=2, implementation="flash")
    with pytest.raises(ValueError, match=r"radial is 'soft', 'smooth', 'paper' or a function .*, got 'gauss'"):
        attention(fields(group), num_heads=2, radial="gauss")
    with pytest.raises(ValueError, match="spacing is one positive number for each"):
        attention(fields(group), num_heads=2, spacing=(1.0,) * 4)
    with pytest.raises(ValueError, match=r"returns a finite number for each distance .* does not for degree 0"):
        attention(fields(group), num_heads=2, radial=lambda r, degree: 1 / r)
    with pytest.raises(ValueError, match=r"radial is a fixed function, got a module; .* override"):
        attention(fields(group), num_heads=2, radial=torch.nn.Linear(1, 1))
    layer = attention(fields(group), num_heads=2)
    x = layer.in_type.randn(2, grid(group))
    with pytest.raises(ValueError, match="return_weights is True, False or 'max', got 'all'"):
        layer(x, return_weights="all")
    with pytest.raises(ValueError, match=r"a mask is boolean, True for valid voxels, .*got torch.float32"):
        layer(x, torch.ones(2, *grid(group)))
    with pytest.raises(ValueError, match=r"of shape \(batch, \*space\)"):
        layer(x, torch.ones(1, *grid(group), dtype=torch.bool))
    with pytest.raises(ValueError, match="Attention takes"):
        layer(x[:, 1:])
    layer.value_position = sf.nn.PositionalEncoding(fields(group), radial="paper")
    with pytest.raises(ValueError, match="keys and values share one table: give both the same radial and spacing"):
        layer(x)
    inputs, table = core_inputs(group)
    with pytest.raises(ValueError, match=r"torch.func, forward mode or a learned table of .*; .*'dense' or 'auto'"):
        attend(*inputs, table.clone().requires_grad_(), implementation="blockwise")
    with pytest.raises(ValueError, match="the table of offsets belongs to a grid of"):
        attend(*(value[..., 1:] for value in inputs[:3]), *inputs[3:], table)


@pytest.mark.parametrize("attend", [dense.attend_plain, dense.attend_at_once, blockwise.attend_blocks])
def test_masked_keys_never_count(attend, float64):
    """A sample without any valid key has zeros and finite gradients; scores of masked keys may be infinite."""
    (q, k, v, *_), table = core_inputs(SO2)
    rows = torch.randn(*q.shape[:2], 2 * table.shape[-1], q.shape[-1], requires_grad=True)
    bias = torch.zeros(2, q.shape[-1])
    bias[0], bias[1, 0] = -math.inf, -math.inf
    lattice = to_integers(lattice_within(grid(SO2)))
    content, position = attend(q, k, v, rows, table, bias, None, lattice)[:2]
    assert not content[0].any() and not position[0].any() and content[1].any()
    gradients = torch.autograd.grad((content.sum() + position.sum()), (q, k, v, rows))
    assert all(gradient.isfinite().all() for gradient in gradients)
    huge = k.detach().clone()
    huge[1, :, :, 0] = 1e200
    assert_close(attend(q, huge, v, rows, table, bias, None, lattice)[0][1], content[1])
