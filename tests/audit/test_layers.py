"""Equivariance errors of layers: zero for equivariant layers, detected for others."""

import pytest
import torch

from audit.tiny import Plain, Tiny
from steerformer import SO2, FieldType
from steerformer.audit import layer_errors
from steerformer.audit.rotations import rotate_input
from steerformer.nn import Conv


def grid_errors(model, size=12):
    group = model.in_type.group
    x = model.in_type.randn(2, size)
    return layer_errors(model.eval(), x, [(R, rotate_input(model, x, R)) for R in group.grid_rotations()[1::3]])


def test_layers_of_a_steerable_model_are_equivariant_on_the_grid(group):
    errors = grid_errors(Tiny(group))
    assert [errors[0].name, errors[-1].name] == ["conv", "logits"]
    assert {"pool", "encoder", "encoder.blocks.0.attention", "last", "invariants"} <= {error.name for error in errors}
    assert max(error.total for error in errors) < 1e-5
    assert max(value for error in errors for value in error.per_degree.values()) < 1e-5


def test_every_layer_of_a_plain_model_fails(group):
    """The negative control."""
    errors = grid_errors(Plain(group))
    assert [error.name for error in errors] == ["norm", "pool", "logits"]
    assert min(error.total for error in errors) > 0.05


def test_first_failing_layer_is_the_wrong_one():
    model = Tiny(SO2)
    model.pool.forward = lambda x: x[..., ::2, ::2]  # keeps a corner of each window, not its center
    errors = {error.name: error.total for error in grid_errors(model)}
    assert errors["nonlinearity"] < 1e-6 < 1e-2 < errors["pool"]


def test_arbitrary_rotations_are_refused():
    x = torch.zeros(1, 1, 12, 12)
    with pytest.raises(ValueError, match="use error_budget for other angles"):
        layer_errors(Tiny(SO2).eval(), x, [(SO2.rotation(0.3), x)])


def test_a_large_map_is_compared_at_the_same_voxels():
    """A layer that is wrong in one corner of the grid is found out."""
    layer = Conv(FieldType.image(SO2, 1), FieldType.image(SO2, 1), kernel_size=3)
    weights = torch.ones(40, 40)
    weights[:20, :20] = 2
    forward = layer.forward
    layer.forward = lambda x: forward(x) * weights
    x, R = torch.randn(1, 1, 40, 40), SO2.grid_rotations()[1]
    assert layer_errors(layer, x, [(R, rotate_input(layer, x, R))])[0].total > 0.1
    layer.forward = forward
    assert layer_errors(layer, x, [(R, rotate_input(layer, x, R))])[0].total < 1e-6


def test_hooks_are_removed_after_an_error(unchecked):
    model = Tiny(SO2)
    with pytest.raises(ValueError, match="Conv takes"):
        layer_errors(model, torch.zeros(1, 2, 12, 12), [(torch.eye(2, dtype=torch.float64), torch.zeros(1, 2, 12, 12))])
    assert not any(module._forward_hooks for module in model.modules())
