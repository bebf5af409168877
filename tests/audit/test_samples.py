"""Samples on which a run is checked."""

import pytest
import torch
from torch.utils.data import TensorDataset

from steerformer.audit import some_samples, upright
from steerformer.data import FolderConfig, ModelNet10Config, RotatedMNISTConfig
from steerformer.data.rotation import interpolation_mode


def test_samples_are_spread_over_the_whole_set():
    x, labels = some_samples(TensorDataset(torch.arange(10.0)[:, None], torch.arange(10)), 4)
    assert labels.tolist() == [0, 3, 6, 9] and x.shape == (4, 1)
    assert len(some_samples(TensorDataset(torch.zeros(3, 1), torch.zeros(3)), 50)[0]) == 3
    with pytest.raises(ValueError, match="no samples"):
        some_samples(TensorDataset(torch.zeros(0, 1), torch.zeros(0)), 4)


def test_test_samples_are_upright_where_the_data_set_rotates_them():
    assert upright(RotatedMNISTConfig()).test_rotation == "none"
    assert upright(ModelNet10Config(test_rotation="so3")).test_rotation == "none"
    assert upright(FolderConfig()) == FolderConfig()


def test_only_binary_voxels_are_interpolated_by_nearest_neighbor():
    assert interpolation_mode(ModelNet10Config()) == "nearest"
    smooth = ModelNet10Config(occupancy="gaussian")
    assert interpolation_mode(smooth) == interpolation_mode(RotatedMNISTConfig()) == "bilinear"
