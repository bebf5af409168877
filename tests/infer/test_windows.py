"""Sliding-window inference: equal to inference on the whole input wherever window borders are out of sight."""

import math
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infer.networks import Local
from steerformer import SO2, models
from steerformer.infer import WindowMemory, predict_labels, predict_logits
from steerformer.infer.memory import resident
from steerformer.infer.windows import _weights, choose_window, spans

SIZES = {2: (23, 40), 3: (13, 22, 17)}


class Known(WindowMemory):
    """A fixed number of bytes per voxel, and far too many for windows of more than ``most`` voxels."""

    def __init__(self, model, each, most=2**50):
        super().__init__(model)
        self.each, self.most = each, most

    def predict(self, voxels):
        return self.each * voxels if voxels <= self.most else 2**60

    def calibrate(self, size, wanted, available):
        pass


def in_windows(function, model, x, side, **options):
    """Call ``function`` with windows of ``side``."""
    window_memory = Known(model, 1, most=math.prod(min(n, side + n % model.stride) for n in x.shape[1:]))
    return function(model, x, memory=2**50, window_memory=window_memory, **options)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
def test_pointwise_network_gives_the_same_in_windows(group, overlap):
    model, x = Local(group, reach=0), torch.randn(1, *SIZES[group.dim])
    shares = []
    found = in_windows(predict_logits, model, x, 8, overlap=overlap, progress=shares.append)
    with torch.no_grad():
        expected = model(x[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert len(shares) > 2 and math.isclose(sum(shares), 1)
    assert torch.equal(in_windows(predict_labels, model, x, 8, overlap=overlap), expected.argmax(0).to(torch.uint8))


def test_overlapping_windows_are_averaged_with_gaussian_weights(group):
    """The oracle: a loop over windows and voxels."""
    model, x = Local(group, reach=2, stride=2), torch.randn(1, *(9,) * group.dim)
    found = in_windows(predict_logits, model, x, 4, overlap=0.5)
    total, weight = torch.zeros(3, *x.shape[1:]), torch.zeros(x.shape[1:])
    starts = [(0, 5), (2, 7), (4, 9)]
    for corner in torch.cartesian_prod(*[torch.arange(3)] * group.dim).tolist():
        there = tuple(slice(*starts[i]) for i in corner)
        with torch.no_grad():
            logits = model(x[(slice(None), *there)][None])[0]
        for voxel in torch.cartesian_prod(*[torch.arange(n) for n in logits.shape[1:]]).tolist():
            gauss = [
                math.exp(-(((i - (n - 1) / 2) / (n / 8)) ** 2) / 2)
                for i, n in zip(voxel, logits.shape[1:], strict=True)
            ]
            one = max(math.prod(gauss), 1e-3)
            place = tuple(here.start + i for here, i in zip(there, voxel, strict=True))
            total[(slice(None), *place)] += one * logits[(slice(None), *voxel)]
            weight[place] += one
    assert torch.allclose(found, total / weight, atol=1e-5)
    with torch.no_grad():  # the negative control: here windows matter
        assert not torch.allclose(found, model(x[None])[0], atol=1e-3)


@pytest.mark.parametrize("size", [(93, 101), (92, 100)])
def test_steerable_network_gives_the_same_away_from_window_borders(size):
    """Pooling and padding fall on the same voxels for odd and even sizes; the receptive field is 16 voxels."""
    layers = {"degrees": 2, "widths": [[2], [3], [3]], "kernel_size": 3, "depth": 0, "classes": 3}
    model, x = models.build({"kind": "unet", "group": "SO2", **layers}).eval(), torch.randn(1, *size)
    found, expected = in_windows(predict_logits, model, x, 64), predict_logits(model, x)
    far = []
    for n in size:
        edges = {edge for pair in spans(n, 64 + n % 4, 4, 0.25) for edge in pair} - {0, n}
        far.append(torch.tensor([min(abs(i + 0.5 - edge) for edge in edges) > 16 for i in range(n)]))
    chosen = far[0][:, None] & far[1]
    assert chosen.sum() > 100
    assert torch.allclose(found[:, chosen], expected[:, chosen], atol=1e-5)
    assert (found - expected).abs().max() > 1e-3  # elsewhere windows matter


def test_pooling_network_gives_the_same_away_from_window_borders(group):
    model, x = Local(group, reach=1, stride=4), torch.randn(1, *(37,) * group.dim)
    found = in_windows(predict_logits, model, x, 16, overlap=0.25)
    with torch.no_grad():
        expected = model(x[None])[0]
    ends = {0, 36, 37}  # of the volume; the last pooling cell starts at 36 and has a single voxel
    borders = {edge for start, stop in spans(37, 17, 4, 0.25) for edge in (start, stop, stop - 1)} - ends
    far = torch.tensor([min(abs(i - edge + 0.5) for edge in borders) > 1 for i in range(37)])
    chosen = torch.stack(torch.meshgrid(*[far] * group.dim, indexing="ij")).all(0)
    assert 0.1 < chosen.float().mean() < 1
    assert torch.allclose(found[:, chosen], expected[:, chosen], atol=1e-6)


@given(rest=st.integers(0, 60), window=st.integers(1, 40), stride=st.integers(1, 8), overlap=st.floats(0, 0.95))
def test_spans_cover_the_axis_on_the_stride_with_the_overlap(rest, window, stride, overlap):
    n = window + stride * rest
    found = spans(n, window, stride, overlap)
    assert found[0][0] == 0 and found[-1][1] == n
    assert all(start % stride == 0 and stop - start == window for start, stop in found)
    for (start, stop), (later, _) in pairwise(found):
        assert start < later and (later <= stop or window < stride)
        assert stop - later >= overlap * window - 1e-9 or later - start == stride


def test_weights_are_largest_at_the_center_and_positive():
    weights = _weights((5, 64))
    assert weights.max() == weights[2, 31] == weights[2, 32] and weights.min() == pytest.approx(1e-3)


def test_window_is_the_largest_that_fits(group):
    """The oracle: bytes of a window of this side and of the next larger side, counted by hand."""
    model, size, classes = Local(group, stride=4), (102,) * group.dim, 3
    each, sides, kept = 10 ** (9 - 2 * group.dim), [], 10**6
    for room in (10**7, 3 * 10**7, 10**8):
        memory = resident() + 48 * 2**20 + room + kept
        side = choose_window(Known(model, each), size, classes, memory, kept=kept)[0] - 2

        def need(side):
            sums = 4 * (classes + 2) * min(102, side + 2) * 102 ** (group.dim - 1)
            return each * min(102, side + 2) ** group.dim + (sums if side < 100 else 0)

        slack = 2 * 2**20  # the process itself may grow a little in between
        assert need(side) <= room + slack and (side == 100 or need(side + 4) > room - slack)
        sides.append(side)
    assert sides == sorted(sides) and sides[0] < 100
    assert choose_window(Known(model, 100), size, 3, None) == size
    assert choose_window(Known(model, 100), size, 3, 2**50) == size


def test_too_little_memory_is_rejected_with_the_size_needed(group):
    model = Local(group)
    with pytest.raises(ValueError, match=r"10M of memory are not enough.*takes [0-9.]+[MG] even with"):
        predict_labels(model, torch.zeros(1, *(32,) * group.dim), memory=10 * 2**20)
    with pytest.raises(ValueError, match=re.escape("overlap is a fraction of a window from 0 to below 1, got 1.0")):
        predict_labels(model, torch.zeros(1, *(32,) * group.dim), overlap=1.0)


def test_more_than_256_classes_give_int16_labels():
    model = Local(SO2, reach=0, classes=300)
    with torch.no_grad():
        model.last.bias[299] = 100
    labels = predict_labels(model, torch.zeros(1, 4, 5))
    assert labels.dtype == torch.int16 and (labels == 299).all()


def test_training_mode_is_restored():
    model = Local(SO2).train()
    model.extra = torch.nn.Dropout(1.0)
    model.forward = lambda x, inner=model.forward: inner(x) + model.extra(torch.ones(1))
    x = torch.randn(1, 6, 6)
    with torch.no_grad():
        expected = Local.forward(model, x[None])[0] + 1
    assert torch.equal(predict_logits(model, x), expected)
    assert model.training and model.extra.training


def test_windows_are_stitched_as_in_monai(group):
    """With windows that both place alike."""
    from monai import inferers

    model, x = Local(group, reach=2).eval(), torch.randn(1, *(20,) * group.dim)
    with torch.no_grad():
        expected = inferers.sliding_window_inference(x[None], (8,) * group.dim, 1, model, overlap=0.5, mode="gaussian")
    assert torch.allclose(in_windows(predict_logits, model, x, 8, overlap=0.5), expected[0], atol=1e-5)
