"""The intensity window."""

import pytest
import torch

from steerformer.plots.intensity import to_gray


def test_percentiles_become_black_and_white_even_for_large_images():
    """More values than torch's quantile takes; 0.5 and 99.5 percent of -1 to 3 are -0.98 and 2.98."""
    gray = to_gray(torch.tensor([-1.0, -0.98, 1.0, 2.98, 3.0]), of=torch.linspace(-1, 3, 17_000_000))
    assert gray.tolist() == pytest.approx([0, 0, 0.5, 1, 1], abs=0.01)


def test_window_from_zero_keeps_the_black_of_nonnegative_images():
    x = torch.full((1, 4, 4), 0.5)
    assert to_gray(x).max() == 0 and to_gray(x, from_zero=True).min() == 1
    assert to_gray(torch.tensor([0.0, 0.25]), of=x, from_zero=True).tolist() == [0, 0.5]
    negative = torch.linspace(-3, -1, 1000)
    assert to_gray(torch.tensor([-3.0, -1.0, 0.0]), of=negative, from_zero=True).tolist() == pytest.approx(
        [0, 0.66, 1], abs=0.02
    )
