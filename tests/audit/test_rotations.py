"""Rotations that are tried, and rotated inputs."""

import torch

from audit.tiny import Tiny
from steerformer.audit import random_rotations, sweep_axes
from steerformer.audit.rotations import rotate_input, rotation_about


def test_random_rotations_depend_only_on_the_seed(group):
    first, again, other = (torch.stack(random_rotations(group, 3, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_multiples_of_90_degrees_are_exact_rotations_of_the_grid(group):
    grid = [R.tolist() for R in group.grid_rotations()]
    for axis in sweep_axes(group).values():
        assert all(rotation_about(group, angle, axis).tolist() in grid for angle in (0, 90, 180, 270, 360))
        assert rotation_about(group, 30, axis).tolist() not in grid


def test_identity_returns_the_input_unchanged(group):
    model, x = Tiny(group), torch.rand(1, 1, *(12,) * group.dim)
    assert rotate_input(model, x, torch.eye(group.dim, dtype=torch.float64)) is x
