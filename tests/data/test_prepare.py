"""Scans made ready for a network, and the way back."""

import pytest
import torch
from scipy import ndimage
from torch.testing import assert_close

from data.scan_files import blobs
from steerformer.config import ConfigError, validate
from steerformer.data import DataError
from steerformer.data.config import CasesConfig
from steerformer.data.prepare import foreground_box, normalize, prepare
from steerformer.infer.memory import peak_of


def config(**settings):
    return CasesConfig(**{"normalize": "none"} | settings)


def scan(shape=(9, 10, 11), channels=2):
    x = torch.zeros(channels, *shape)
    inner = tuple(slice(2, n - 3) for n in shape)
    x[(slice(None), *inner)] = torch.rand(channels, *[n - 5 for n in shape]) + 0.5
    return x


def test_nothing_is_done_unasked():
    x = scan()
    found = prepare(x, (1.0, 2.0, 3.0), config())
    assert_close(found.x, x)
    assert found.spacing == (1.0, 2.0, 3.0)
    labels = torch.randint(0, 3, x.shape[1:])
    assert_close(found.restore(found.labels(labels)), labels)
    scores = torch.randn(3, *x.shape[1:])
    assert_close(found.restore(scores), scores)


@pytest.mark.parametrize("shape", [(9, 10), (9, 10, 11)])
@pytest.mark.parametrize("margin", [0, 1, 4])
def test_cropping_keeps_what_is_not_zero_and_a_margin(shape, margin):
    x = scan(shape)
    x[1] = 0
    x[1][(4,) * len(shape)] = -1.0  # a second channel that is 0 elsewhere
    expected = ndimage.find_objects((x != 0).any(dim=0).numpy().astype(int))[0]
    expected = tuple(
        slice(max(part.start - margin, 0), min(part.stop + margin, n)) for part, n in zip(expected, shape, strict=True)
    )
    assert foreground_box(x, margin) == expected
    assert_close(prepare(x, (1.0,) * len(shape), config(crop=margin)).x, x[(slice(None), *expected)])


def test_nothing_is_cropped_from_what_is_empty():
    assert foreground_box(torch.zeros(1, 4, 5), 0) == (slice(0, 4), slice(0, 5))


def test_channels_are_normalized_over_what_is_not_zero():
    x = scan() * torch.tensor([1.0, 300.0])[:, None, None, None] + 0.0
    found = normalize(x, "nonzero")
    for channel, result in zip(x, found, strict=True):
        values = result[channel != 0]
        assert values.mean() == pytest.approx(0, abs=1e-6) and values.std(correction=0) == pytest.approx(1, abs=1e-5)
        assert (result[channel == 0] == 0).all()
        assert torch.equal(channel[channel != 0].argsort(), values.argsort())


def test_channels_are_normalized_over_everything():
    found = normalize(scan() + 5, "image")
    assert_close(found.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-6)
    assert_close(found.std(dim=(1, 2, 3), correction=0), torch.ones(2))


@pytest.mark.parametrize("how", ["nonzero", "image"])
def test_constant_and_empty_channels_become_zero(how):
    x = torch.stack([torch.zeros(4, 4), torch.full((4, 4), 3.0)])
    assert_close(normalize(x, how), torch.zeros(2, 4, 4))


@pytest.mark.parametrize("shape, spacing", [((16, 13), 0.7), ((9, 10, 11), 1.7)])
@pytest.mark.parametrize("how", ["nonzero", "image"])
def test_a_constant_channel_is_still_one_after_resampling(how, shape, spacing):
    found = prepare(torch.full((1, *shape), 100.1), (1.0,) * len(shape), config(normalize=how, spacing=spacing))
    assert not found.x.any()


@pytest.mark.parametrize("how", ["nonzero", "image"])
def test_normalizing_is_the_formula_in_double_precision(how):
    x = 1000 * scan() + 7 * (scan() > 0)
    for channel, result in zip(x.double(), normalize(x, how), strict=True):
        chosen = channel != 0 if how == "nonzero" else torch.ones_like(channel, dtype=torch.bool)
        expected = (channel - channel[chosen].mean()) / channel[chosen].std(correction=0)
        assert torch.equal(result, expected.where(chosen, 0).float())


@pytest.mark.parametrize("how", ["nonzero", "image"])
def test_normalizing_takes_little_more_memory_than_its_result(how):
    x = torch.rand(1, 128, 128, 128)
    normalize(x[:, :2], how)
    peak = peak_of(lambda: normalize(x, how))
    if peak is None:
        pytest.skip("the system does not tell peaks of memory")
    assert peak < (4 + 8) * x.numel()


def test_what_is_cropped_does_not_count():
    x = scan()
    cropped = prepare(x, (1.0,) * 3, config(crop=0, normalize="image")).x
    assert_close(cropped.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-6)


def test_spacing_is_brought_to_what_is_asked_for():
    x = torch.rand(2, 8, 8, 4)
    found = prepare(x, (1.0, 1.0, 2.0), config(spacing=(2.0, 1.0, 1.0)))
    assert found.x.shape == (2, 4, 8, 8) and found.spacing == (2.0, 1.0, 1.0)
    halved = x.unflatten(1, (4, 2)).mean(dim=2)
    assert_close(found.x[..., 1:-1:2], 0.75 * halved[..., :-1] + 0.25 * halved[..., 1:])  # at quarters between voxels
    assert prepare(x, (1.0, 1.0, 2.0), config(spacing=1.0)).x.shape == (2, 8, 8, 8)
    odd = prepare(torch.rand(1, 7, 7), (1.0, 1.0), config(spacing=2.0))
    assert odd.x.shape == (1, 4, 4) and odd.spacing == (7 / 4, 7 / 4)


def test_size_is_met_whatever_the_proportions():
    found = prepare(torch.ones(3, 20, 31), (1.0, 1.0), config(size=(10, 12)))
    assert_close(found.x, torch.ones(3, 10, 12))
    assert found.spacing == pytest.approx((2, 31 / 12))


@pytest.mark.parametrize("shape", [(16, 20), (16, 18, 20)])
def test_labels_come_back_to_the_scan(shape):
    height, labels = (torch.from_numpy(array) for array in blobs(shape, classes=3))
    steps = (1.0,) * len(shape)
    found = prepare(height[None], steps, config(crop=1, spacing=0.5))
    assert found.x.shape[1] < 2 * shape[0]
    assert torch.equal(found.restore(found.labels(labels)), labels)  # twice as fine: nothing is lost
    assert found.restore(found.labels(labels)).dtype == labels.dtype


def test_scores_come_back_and_what_was_cropped_is_background():
    height = torch.from_numpy(blobs((24, 24, 24))[0])
    found = prepare(height[None], (1.0,) * 3, config(crop=0, spacing=(1.5, 1.5, 1.5)))
    inside = (found.x[0] > 0.4).float()
    whole = found.restore(torch.stack([1 - inside, 3 * inside - 1]))
    outside = torch.ones(24, 24, 24, dtype=torch.bool)
    outside[foreground_box(height[None], 0)] = False
    assert whole.shape == (2, 24, 24, 24) and outside.any()
    assert (whole[0][outside] == 2).all() and (whole[1][outside] == -1).all()
    assert ((whole.argmax(dim=0) == 1) == (height > 0.4)).float().mean() > 0.98


def test_bad_settings_are_named():
    with pytest.raises(DataError, match="size has 2 numbers, but the data have 3 axes"):
        prepare(scan(), (1.0,) * 3, config(size=(4, 4)))
    for values, message in (
        ({"size": 4, "spacing": 1.0}, "size and spacing both say how to resample"),
        ({"size": 0}, "size"),
        ({"spacing": -1}, "spacing"),
        ({"validation": -1}, "expected a number of cases, or a share of them from 0 to 1, got -1"),
        ({"test": 1.5}, "expected a number of cases, or a share"),
        ({"train": True}, "expected a number of cases, or a share of them from 0 to 1, got true"),
        ({"test": False}, "expected a number of cases, or a share of them from 0 to 1, got false"),
        ({"patch": []}, "patch"),
    ):
        with pytest.raises(ConfigError, match=message):
            validate(CasesConfig, values, where="data")


def test_parts_are_counts_or_shares():
    found = CasesConfig(train=3, validation=0.25, test=1.0, size=7)
    assert (found.train, found.validation, found.test, found.size) == (3, 0.25, 1, (7,))
    assert isinstance(found.train, int) and isinstance(found.test, int)
    assert CasesConfig.model_validate(found.model_dump(mode="json")) == found
