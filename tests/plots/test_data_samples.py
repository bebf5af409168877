"""Figures of data samples; ``steerformer data`` tests the files."""

import torch

from steerformer.plots import data_samples


def test_surfaces_are_drawn_from_outside_and_solid_volumes_as_slices():
    solid, surface = torch.rand(1, 8, 8, 8) + 1, torch.zeros(1, 8, 8, 8)
    surface[0, 2:5, 3, 3:6] = 1
    assert data_samples._is_surface(surface) and not data_samples._is_surface(solid)
    assert not data_samples._is_surface(100 * surface) and not data_samples._is_surface(1 - surface)
