"""Grids of directions: averages of harmonics are exact, and quarter turns map the grid to itself."""

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO3

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 7, 8, 12])
def test_harmonics_up_to_the_degree_average_to_zero(group, degree):
    u, weights = group.direction_grid(degree)
    assert_close(u.norm(dim=1), torch.ones(len(u)), rtol=0, atol=1e-12)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    for harmonic in range(1, degree + 1):
        assert (weights.to(Y := group.harmonics(harmonic, u)) @ Y).abs().max() < 1e-10


@pytest.mark.parametrize("degree", [0, 2, 3, 6])
def test_products_of_harmonics_are_orthogonal_on_a_grid_of_twice_the_degree(group, degree):
    u, weights = group.direction_grid(2 * degree)
    Y = torch.cat([group.harmonics(each, u) for each in range(degree + 1)], dim=1)
    expected = torch.cat([torch.full((n,), 1 / n) for n in map(group.irrep_dim, range(degree + 1))])
    gram = Y.mH @ (weights[:, None] * Y)
    assert_close(gram, torch.diag(expected).to(gram), rtol=0, atol=1e-10)


@pytest.mark.parametrize("degree", [0, 3, 8])
def test_rotations_of_the_voxel_grid_permute_the_directions(group, degree):
    u, weights = group.direction_grid(degree)
    for R in group.grid_rotations():
        distance, partner = torch.cdist(u @ R.mT, u, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1)
        assert distance.max() < 1e-10
        assert sorted(partner.tolist()) == list(range(len(u)))
        assert_close(weights[partner], weights, rtol=0, atol=1e-12)


def test_there_is_a_largest_grid_of_space():
    with pytest.raises(ValueError, match="resolve degrees up to 131, got 200"):
        SO3.direction_grid(200)
