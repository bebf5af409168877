"""Equivariance errors of layers: zero for equivariant layers, detected for others."""

import math

import pytest
import torch

from audit.tiny import Plain, Tiny
from steerformer import SO2, FieldType
from steerformer.audit import layer_errors, random_rotations, scene_errors
from steerformer.audit.layers import compared_points, values_at
from steerformer.audit.rotations import rotate_input
from steerformer.nn import Conv
from steerformer.testing import blobs, equivariance_error


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


def test_errors_on_scenes_agree_with_equivariance_error(group):
    """On an odd grid both compare the central voxel."""
    image, features = FieldType.image(group, 1), FieldType(group, (2, 1))
    layer = Conv(image, features, kernel_size=5).double()
    scene, R = blobs(image, batch=4), random_rotations(group, 1)[0]
    found = layer_errors(layer, scene.sample(9), [(R, scene.rotate(R).sample(9))])
    expected = equivariance_error(layer, R, scene=scene, size=9)
    assert [(error.name, error.compared) for error in found] == [("logits", "center")]
    assert found[0].total == pytest.approx(expected.total, rel=1e-6)
    assert found[0].per_degree == pytest.approx(expected.per_degree, rel=1e-6)


def test_even_grids_are_compared_in_the_interior(group):
    samples = torch.rand(2, 1, *(12,) * group.dim)
    errors = {error.name: error for error in scene_errors(Tiny(group).eval(), samples, random_rotations(group, 2))}
    assert errors["conv"].compared == "interior" and errors["last"].compared == "center"
    assert 1e-6 < errors["conv"].total < 0.05
    assert errors["logits"].compared == "no space"


def test_hooks_are_removed_after_an_error(unchecked):
    model = Tiny(SO2)
    with pytest.raises(ValueError, match="Conv takes"):
        layer_errors(model, torch.zeros(1, 2, 12, 12), [(torch.eye(2, dtype=torch.float64), torch.zeros(1, 2, 12, 12))])
    assert not any(module._forward_hooks for module in model.modules())


def test_interpolated_values_reproduce_a_polynomial():
    """Quintic splines reproduce polynomials up to degree five; the oracle is the polynomial."""
    points = torch.rand(20, 2, dtype=torch.float64) * 6 - 3

    def value(p):
        return p[..., 0] ** 4 - 2 * p[..., 0] * p[..., 1] ** 3 + 1

    grid = torch.stack(torch.meshgrid(torch.arange(8.0) - 3.5, torch.arange(10.0) - 4.5, indexing="ij"), -1).double()
    assert torch.allclose(values_at(value(grid)[None, None], points)[0, 0], value(points), atol=1e-8)


@pytest.mark.parametrize("grid", [(7, 7), (28, 28), (2, 2), (6, 6, 6), (1, 1)])
def test_compared_points_are_voxels_of_the_interior(grid):
    for is_exact in (True, False):
        points, _ = compared_points(grid, is_exact=is_exact)
        indices = points + torch.tensor([(n - 1) / 2 for n in grid], dtype=torch.float64)
        assert torch.equal(indices, indices.round())
        if not is_exact and len(points):
            assert points.norm(dim=1).max() <= 0.75 * (min(grid) - 1) / 2
    assert len(compared_points(grid, is_exact=True)[0]) == min(500, math.prod(grid))
