"""Gaussian windows along an axis; the products with banded matrices are tested by the layers that use them."""

import pytest
import torch
from scipy import ndimage
from torch.testing import assert_close

from steerformer.nn.separable import gaussian_windows


@pytest.mark.parametrize("deviation", [0.3, 0.9, 1.2])
def test_gaussian_windows_are_a_gaussian_filter(deviation, float64):
    x = torch.randn(2, 3, 12, 9)
    for axis in (2, 3):
        expected = ndimage.gaussian_filter1d(
            x.numpy(), deviation, axis, mode="constant", radius=int(-(-3 * deviation // 1))
        )
        windows = gaussian_windows(x, axis, x.shape[axis], 1, deviation).matrix
        assert_close((x.movedim(axis, -1) @ windows.mT).movedim(-1, axis), torch.from_numpy(expected))


@pytest.mark.parametrize("deviation", [0.3, 0.9, 1.2])
def test_gaussian_windows_between_voxels(deviation, float64):
    """The oracle: a double loop over samples and voxels."""
    x = torch.randn(1, 1, 7)
    found = gaussian_windows(x, 2, 8, 1, deviation).matrix @ x[0, 0]
    for i in range(8):
        offsets = [j - (i - 0.5) for j in range(-20, 28)]
        reach = min(offset for offset in offsets if offset >= 3 * deviation)
        weights = {j: torch.exp(torch.tensor(-(((j - i + 0.5) / deviation) ** 2) / 2)) for j in range(-20, 28)}
        inside = {j: weight for j, weight in weights.items() if abs(j - i + 0.5) <= reach}
        expected = sum(weight * x[0, 0, j] for j, weight in inside.items() if 0 <= j < 7) / sum(inside.values())
        assert_close(found[i], expected)
