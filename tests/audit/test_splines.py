"""Values between voxels: polynomials are reproduced, and voxels are exact."""

import pytest
import torch

from steerformer.audit.splines import values_at
from steerformer.fields import voxel_coordinates


def test_interpolated_values_reproduce_a_polynomial():
    """Quintic splines reproduce polynomials up to degree five; the oracle is the polynomial."""
    points = torch.rand(20, 2, dtype=torch.float64) * 6 - 3

    def value(p):
        return p[..., 0] ** 4 - 2 * p[..., 0] * p[..., 1] ** 3 + 1

    grid = voxel_coordinates((8, 10))
    assert torch.allclose(values_at(value(grid)[None, None], points)[0, 0], value(points), atol=1e-8)


@pytest.mark.parametrize("size", [(7, 7), (4, 9), (3, 2), (1, 5), (5, 6, 4)])
def test_voxels_are_exact_and_points_outside_take_the_edge(size):
    y = torch.randn(2, 3, *size, dtype=torch.float64)
    points = voxel_coordinates(size).flatten(0, -2)
    assert torch.allclose(values_at(y, points), y.flatten(2), atol=1e-10)
    corner = torch.full((1, len(size)), 100.0, dtype=torch.float64)
    assert torch.allclose(values_at(y, corner)[..., 0], y.flatten(2)[..., -1], atol=1e-10)
