"""Preprocessing: crop, resample and normalize, and its inverse."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch.testing import assert_close

from data.scan_files import blobs, write_nifti
from steerformer.config import ConfigError, validate
from steerformer.data import DataError
from steerformer.data.config import SegmentationDataConfig
from steerformer.data.preprocessing import fit_to_grid, foreground_box, normalize, preprocess, read_sample
from steerformer.infer.memory import measure_peak


def config(**options):
    return SegmentationDataConfig(**{"normalize": "none"} | options)


def scan(shape=(9, 10, 11), channels=2):
    x = torch.zeros(channels, *shape)
    inner = tuple(slice(2, n - 3) for n in shape)
    x[(slice(None), *inner)] = torch.rand(channels, *[n - 5 for n in shape]) + 0.5
    return x


def test_default_changes_nothing():
    x = scan()
    found = preprocess(x, (1.0, 2.0, 3.0), config())
    assert_close(found.x, x)
    assert found.spacing == (1.0, 2.0, 3.0)
    labels = torch.randint(0, 3, x.shape[1:])
    assert_close(found.restore(found.labels(labels)), labels)
    scores = torch.randn(3, *x.shape[1:])
    assert_close(found.restore(scores), scores)


@pytest.mark.parametrize("shape", [(9, 10), (9, 10, 11)])
@pytest.mark.parametrize("margin", [0, 1, 4])
def test_crop_keeps_nonzero_voxels_and_a_margin(shape, margin):
    x = scan(shape)
    x[1] = 0
    x[1][(4,) * len(shape)] = -1.0  # the second channel is 0 elsewhere
    expected = ndimage.find_objects((x != 0).any(dim=0).numpy().astype(int))[0]
    expected = tuple(
        slice(max(part.start - margin, 0), min(part.stop + margin, n)) for part, n in zip(expected, shape, strict=True)
    )
    assert foreground_box(x, margin) == expected
    assert_close(preprocess(x, (1.0,) * len(shape), config(crop=margin)).x, x[(slice(None), *expected)])


def test_empty_scans_are_not_cropped():
    assert foreground_box(torch.zeros(1, 4, 5), 0) == (slice(0, 4), slice(0, 5))


def test_normalization_over_nonzero_voxels():
    x = scan() * torch.tensor([1.0, 300.0])[:, None, None, None] + 0.0
    found = normalize(x, "nonzero")
    for channel, result in zip(x, found, strict=True):
        values = result[channel != 0]
        assert values.mean() == pytest.approx(0, abs=1e-6) and values.std(correction=0) == pytest.approx(1, abs=1e-5)
        assert (result[channel == 0] == 0).all()
        assert torch.equal(channel[channel != 0].argsort(), values.argsort())


def test_normalization_over_all_voxels():
    found = normalize(scan() + 5, "image")
    assert_close(found.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-6)
    assert_close(found.std(dim=(1, 2, 3), correction=0), torch.ones(2))


@pytest.mark.parametrize("method", ["background", "nonzero", "image"])
def test_constant_and_empty_channels_become_zero(method):
    x = torch.stack([torch.zeros(4, 4), torch.full((4, 4), 3.0)])
    assert_close(normalize(x, method), torch.zeros(2, 4, 4))


@pytest.mark.parametrize("shape, spacing", [((16, 13), 0.7), ((9, 10, 11), 1.7)])
@pytest.mark.parametrize("method", ["background", "nonzero", "image"])
def test_constant_channels_become_zero_after_resampling(method, shape, spacing):
    found = preprocess(torch.full((1, *shape), 100.1), (1.0,) * len(shape), config(normalize=method, spacing=spacing))
    assert not found.x.any()


@pytest.mark.parametrize("method", ["nonzero", "image"])
def test_normalization_is_computed_in_double_precision(method):
    x = 1000 * scan() + 7 * (scan() > 0)
    for channel, result in zip(x.double(), normalize(x, method), strict=True):
        chosen = channel != 0 if method == "nonzero" else torch.ones_like(channel, dtype=torch.bool)
        expected = (channel - channel[chosen].mean()) / channel[chosen].std(correction=0)
        assert torch.equal(result, expected.where(chosen, 0).float())


@pytest.mark.parametrize("method", ["background", "nonzero", "image"])
def test_normalization_takes_little_more_memory_than_its_result(method):
    x = torch.rand(1, 128, 128, 128) * 0.01
    x[:, 30:90, 30:90, 30:90] += 1  # a body in noise
    normalize(x[:, :2], method)
    peak = measure_peak(lambda: normalize(x, method))
    if peak is None:
        pytest.skip("the system does not report peak memory")
    assert peak < (4 + 8) * x.numel() + 2**20  # the allocator's own


def test_cropped_voxels_do_not_affect_normalization():
    x = scan()
    cropped = preprocess(x, (1.0,) * 3, config(crop=0, normalize="image")).x
    assert_close(cropped.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-6)


def test_scans_are_resampled_to_the_spacing():
    x = torch.rand(2, 8, 8, 4)
    found = preprocess(x, (1.0, 1.0, 2.0), config(spacing=(2.0, 1.0, 1.0)))
    assert found.x.shape == (2, 4, 8, 8) and found.spacing == (2.0, 1.0, 1.0)
    halved = x.unflatten(1, (4, 2)).mean(dim=2)
    assert_close(found.x[..., 1:-1:2], 0.75 * halved[..., :-1] + 0.25 * halved[..., 1:])
    assert preprocess(x, (1.0, 1.0, 2.0), config(spacing=1.0)).x.shape == (2, 8, 8, 8)
    odd = preprocess(torch.rand(1, 7, 7), (1.0, 1.0), config(spacing=2.0))
    assert odd.x.shape == (1, 4, 4) and odd.spacing == (7 / 4, 7 / 4)


def test_scans_are_resampled_to_the_size():
    found = preprocess(torch.ones(3, 20, 31), (1.0, 1.0), config(size=(10, 12)))
    assert_close(found.x, torch.ones(3, 10, 12))
    assert found.spacing == pytest.approx((2, 31 / 12))


@pytest.mark.parametrize("shape", [(16, 20), (16, 18, 20)])
def test_labels_are_restored_on_the_grid_of_the_scan(shape):
    height, labels = (torch.from_numpy(array) for array in blobs(shape, classes=3))
    steps = (1.0,) * len(shape)
    found = preprocess(height[None], steps, config(crop=1, spacing=0.5))
    assert found.x.shape[1] < 2 * shape[0]
    assert torch.equal(found.restore(found.labels(labels)), labels)  # a grid twice as fine loses nothing
    assert found.restore(found.labels(labels)).dtype == labels.dtype


def test_scores_are_restored_and_cropped_voxels_are_background():
    height = torch.from_numpy(blobs((24, 24, 24))[0])
    found = preprocess(height[None], (1.0,) * 3, config(crop=0, spacing=(1.5, 1.5, 1.5)))
    inside = (found.x[0] > 0.4).float()
    whole = found.restore(torch.stack([1 - inside, 3 * inside - 1]))
    outside = torch.ones(24, 24, 24, dtype=torch.bool)
    outside[foreground_box(height[None], 0)] = False
    assert whole.shape == (2, 24, 24, 24) and outside.any()
    assert (whole[0][outside] == 2).all() and (whole[1][outside] == -1).all()
    assert ((whole.argmax(dim=0) == 1) == (height > 0.4)).float().mean() > 0.98


def test_invalid_options_are_named():
    with pytest.raises(DataError, match="size has 2 numbers, but the data have 3 spatial axes"):
        preprocess(scan(), (1.0,) * 3, config(size=(4, 4)))
    for values, message in (
        ({"size": 4, "spacing": 1.0}, "size and spacing both define the resampling"),
        ({"size": 0}, "size"),
        ({"spacing": -1}, "spacing"),
        ({"validation": -1}, "expected a number of cases, or a fraction of them from 0 to 1, got -1"),
        ({"test": 1.5}, "expected a number of cases, or a fraction"),
        ({"train": True}, "expected a number of cases, or a fraction of them from 0 to 1, got true"),
        ({"test": False}, "expected a number of cases, or a fraction of them from 0 to 1, got false"),
        ({"patch_size": []}, "patch_size"),
    ):
        with pytest.raises(ConfigError, match=message):
            validate(SegmentationDataConfig, values, where="data")


def test_splits_are_counts_or_fractions():
    found = SegmentationDataConfig(train=3, validation=0.25, test=1.0, size=7)
    assert (found.train, found.validation, found.test, found.size) == (3, 0.25, 1, (7,))
    assert isinstance(found.train, int) and isinstance(found.test, int)
    assert SegmentationDataConfig.model_validate(found.model_dump(mode="json")) == found


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 3)])
def test_sample_of_the_target_size_is_unchanged(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, size=shape).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected = torch.from_numpy(pixels.reshape(16, 16, -1)).movedim(2, 0) / 255
    assert_close(read_sample(tmp_path / "a.png", size=16, channels=len(expected)), expected)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz", "npy"])
def test_volume_of_the_target_size_is_only_divided_by_its_std(tmp_path, suffix):
    array = np.random.default_rng(0).normal(size=(5, 5, 5)).astype(np.float32)
    path = tmp_path / f"a.{suffix}"
    np.save(path, array) if suffix == "npy" else write_nifti(path, array)
    assert_close(read_sample(path, size=5, channels=1), torch.from_numpy(array)[None])
    scaled = read_sample(path, size=5, channels=1, normalize="std")
    assert float(scaled.std()) == pytest.approx(1)


def test_longest_side_is_resampled_to_the_size_and_the_rest_padded():
    x = torch.rand(2, 8, 4)
    same = fit_to_grid(x, 8)
    assert_close(same[:, :, 2:6], x)
    assert same[:, :, :2].abs().max() == same[:, :, 6:].abs().max() == 0
    half = fit_to_grid(x, 4)
    assert_close(half[:, :, 1:3], x.unflatten(1, (4, 2)).unflatten(3, (2, 2)).mean(dim=(2, 4)))
    assert fit_to_grid(x, 16).shape == (2, 16, 16)
    assert_close(fit_to_grid(torch.ones(1, 5, 5, 5), 9), torch.ones(1, 9, 9, 9))


def test_samples_are_resampled_in_millimeters(tmp_path):
    path = write_nifti(tmp_path / "a.nii", np.ones((4, 4, 2), np.float32), np.diag([1.0, 1.0, 2.0, 1.0]))
    assert_close(read_sample(path, size=4, channels=1), torch.ones(1, 4, 4, 4))
