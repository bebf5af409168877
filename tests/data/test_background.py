"""The background of scans: found whatever its value and noise, zero after normalization, and cropped away."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from steerformer.data.background import measure_background
from steerformer.data.config import SegmentationDataConfig
from steerformer.data.preprocessing import foreground_box, normalize, preprocess

HEAD = (slice(6, 20), slice(5, 18), slice(8, 21))


def head(*, level, noise, dim=3, seed=0):
    """A head of intensities around ``level + 100`` in a noisy background."""
    random = np.random.default_rng(seed)
    x = level + noise * random.standard_normal((26,) * dim)
    x[HEAD[:dim]] = level + 100 + 10 * random.standard_normal(x[HEAD[:dim]].shape)
    return torch.from_numpy(x).float()


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("level, noise", [(0.0, 0.0), (-1000.0, 0.0), (-3.0, 0.5), (40.0, 4.0)])
def test_background_is_measured_and_becomes_zero(level, noise, dim):
    x = head(level=level, noise=noise, dim=dim)
    found = measure_background(x)
    assert found.level == pytest.approx(level, abs=0.2 * noise + 1e-9)
    assert found.noise == pytest.approx(noise, rel=0.2)
    result, inside = normalize(x[None], "background")[0], torch.zeros(x.shape, dtype=torch.bool)
    inside[HEAD[:dim]] = True
    assert result[~inside].mean().abs() < 0.01
    assert result[inside].square().mean().sqrt() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("level, noise", [(0.0, 0.0), (-1000.0, 0.0), (-3.0, 0.5), (40.0, 4.0)])
def test_crop_finds_the_foreground(level, noise, dim):
    """Noise may cost an edge of the head a voxel, where few neighbors are foreground."""
    box = foreground_box(head(level=level, noise=noise, dim=dim)[None], 1)
    for found, expected in zip(box, HEAD[:dim], strict=True):
        assert abs(found.start - (expected.start - 1)) <= (noise > 0)
        assert abs(found.stop - (expected.stop + 1)) <= (noise > 0)


def test_scans_without_a_background_are_all_foreground():
    """A crop of an organ has tissue at its border."""
    x = 100 + 30 * torch.randn(12, 13, 14, generator=torch.Generator().manual_seed(0))
    found = measure_background(x)
    assert found.noise is None and found.foreground(x).all()
    assert foreground_box(x[None], 0) == tuple(slice(0, n) for n in x.shape)
    assert normalize(x[None], "background").std() == pytest.approx(1, abs=1e-3)


def test_masked_scans_that_reach_over_the_edge_have_their_mask_as_background():
    x = torch.zeros(16, 16, 16)
    x[:12] = 50 + torch.rand(12, 16, 16)
    assert measure_background(x).level == 0.0
    assert foreground_box(x[None], 0) == (slice(0, 12), slice(0, 16), slice(0, 16))


def test_channels_have_backgrounds_of_their_own():
    x = torch.stack([head(level=-3, noise=0.1), head(level=500, noise=0, seed=1)])
    result = normalize(x, "background")
    assert_close(result[:, 0, 0].mean(dim=-1), torch.zeros(2), rtol=0, atol=0.05)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 1.3, 3.0])
def test_rounded_noise_is_not_a_mask(sigma):
    """Magnitudes of air in MRI are small integers, many of them 0."""
    random = np.random.default_rng(0)
    x = np.round(random.rayleigh(sigma, (30, 30, 30)))
    x[8:20, 9:21, 7:19] = 100 + 5 * random.standard_normal((12, 12, 12))
    x = torch.from_numpy(x).float()
    share = float(measure_background(x).foreground(x).double().mean())
    assert share == pytest.approx(12**3 / 30**3, rel=0.15)
    assert normalize(x[None], "background")[0, 8:20, 9:21, 7:19].mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("level", [-3.3, 0.1, 1e4])
def test_rounding_of_resampling_is_not_foreground(level):
    x = head(level=level, noise=0.0)
    found = preprocess(x[None], (1.0,) * 3, SegmentationDataConfig(spacing=1.3)).x[0]
    assert found[0].abs().max() < 1e-3 and found.max() == pytest.approx(1.2, abs=0.3)
    assert float((found > 0.5).double().mean()) == pytest.approx(14 * 13 * 13 / 26**3, rel=0.15)


def test_anatomy_may_reach_through_the_first_and_the_last_slices():
    """A body in air, of which the slices cut out the middle."""
    random = np.random.default_rng(0)
    x = -1000 + 10 * random.standard_normal((80, 80, 12))
    x[12:68, 12:68] = 40 + 20 * random.standard_normal((56, 56, 12))
    x = torch.from_numpy(x).float()
    found = measure_background(x)
    assert found.level == pytest.approx(-1000, abs=3) and found.noise == pytest.approx(10, rel=0.1)
    box = foreground_box(x[None], 0)
    assert all(abs(part.start - 12) <= 1 and abs(part.stop - 68) <= 1 for part in box[:2])


def test_crop_without_margin_keeps_the_background_at_zero():
    x = head(level=-1000, noise=0.0)
    found = preprocess(x[None], (1.0,) * 3, SegmentationDataConfig(crop=0)).x
    assert found.mean() == pytest.approx(1, abs=0.02)  # all of it is tissue


def test_single_slices_and_single_voxels_are_measured():
    assert measure_background(head(level=4, noise=0.0, dim=2)[None]).level == 4.0
    assert measure_background(torch.full((1, 1), 7.0)).level == 7.0


def test_padding_shows_no_edge():
    """The reason for all this: what lies outside a scan is background."""
    edges = {}
    for method in ("background", "image"):
        scan = preprocess(head(level=-3, noise=0.0)[None], (1.0,) * 3, SegmentationDataConfig(normalize=method))
        padded = torch.nn.functional.pad(scan.x, [2] * 6)
        edges[method] = float(padded[0, :4, 12, 12].diff().abs().max())
    assert edges["background"] == 0 < 0.3 < edges["image"]
