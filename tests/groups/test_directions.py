"""Direction grids: averages of harmonics are exact, and grid rotations map the nodes to themselves."""

import pytest
import torch
from torch.testing import assert_close

from steerformer import SO3

pytestmark = pytest.mark.usefixtures("float64")


def test_harmonics_up_to_degree_average_to_zero(group):
    for degree in (0, 1, 2, 3, 4, 7, 8, 12):
        u, weights = group.direction_grid(degree)
        assert_close(u.norm(dim=1), torch.ones(len(u)), rtol=0, atol=1e-12)
        assert weights.sum().item() == pytest.approx(1, abs=1e-12), degree
        for harmonic in range(1, degree + 1):
            assert (weights.to(Y := group.harmonics(harmonic, u)) @ Y).abs().max() < 1e-10, (degree, harmonic)


def test_harmonics_are_orthogonal_on_grid_of_twice_the_degree(group):
    for degree in (0, 2, 3, 6):
        u, weights = group.direction_grid(2 * degree)
        Y = torch.cat([group.harmonics(each, u) for each in range(degree + 1)], dim=1)
        expected = torch.cat([torch.full((n,), 1 / n) for n in map(group.irrep_dim, range(degree + 1))])
        gram = Y.mH @ (weights[:, None] * Y)
        assert_close(gram, torch.diag(expected).to(gram), rtol=0, atol=1e-10)


def test_grid_rotations_permute_directions(group):
    for degree in (0, 3, 8):
        u, weights = group.direction_grid(degree)
        for R in group.grid_rotations():
            distance, partner = torch.cdist(u @ R.mT, u, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1)
            assert distance.max() < 1e-10, degree
            assert sorted(partner.tolist()) == list(range(len(u))), degree
            assert_close(weights[partner], weights, rtol=0, atol=1e-12)


def test_so3_direction_grid_has_largest_degree():
    with pytest.raises(ValueError, match="direction grids resolve degrees up to 131, got 200"):
        SO3.direction_grid(200)
