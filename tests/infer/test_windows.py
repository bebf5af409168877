"""Predictions in windows: equal to those of the whole wherever windows do not matter."""

import math
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infer.networks import Local
from steerformer import SO2, SO3, models
from steerformer.infer import Appetite, predict_labels, predict_logits
from steerformer.infer.memory import resident
from steerformer.infer.windows import _weights, choose_window, spans

SIZES = {2: (23, 40), 3: (13, 22, 17)}


class Known(Appetite):
    """So many bytes a voxel, whatever the model, and no end of them from a number of voxels on."""

    def __init__(self, model, each, most=2**50):
        super().__init__(model)
        self.each, self.most = each, most

    def of(self, voxels):
        return self.each * voxels if voxels <= self.most else 2**60

    def learn(self, size, wanted, room):
        pass


def in_windows(function, model, x, side, **options):
    """The call with windows of ``side``."""
    appetite = Known(model, 1, most=math.prod(min(n, side + n % model.stride) for n in x.shape[1:]))
    return function(model, x, memory=2**50, appetite=appetite, **options)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
def test_a_network_that_sees_one_voxel_gives_the_same_in_windows(group, overlap):
    model, x = Local(group, reach=0), torch.randn(1, *SIZES[group.dim])
    shares = []
    found = in_windows(predict_logits, model, x, 8, overlap=overlap, progress=shares.append)
    with torch.no_grad():
        expected = model(x[None])[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert len(shares) > 2 and math.isclose(sum(shares), 1)
    assert torch.equal(in_windows(predict_labels, model, x, 8, overlap=overlap), expected.argmax(0).to(torch.uint8))


def test_windows_are_averaged_with_weights_as_a_loop_over_voxels_says(group):
    """The oracle: every window on its own, every voxel on its own."""
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
    with torch.no_grad():  # a negative control: here windows do matter
        assert not torch.allclose(found, model(x[None])[0], atol=1e-3)


@pytest.mark.parametrize("size", [(93, 101), (92, 100)])
def test_a_steerable_network_gives_the_same_where_it_sees_no_border_of_a_window(size):
    """Its poolings and paddings fall on the same voxels, odd sizes or even ones: 16 voxels is as far as it sees."""
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
    assert (found - expected).abs().max() > 1e-3  # elsewhere windows do matter


def test_where_the_border_of_no_window_is_seen_pooling_networks_give_the_same(group):
    model, x = Local(group, reach=1, stride=4), torch.randn(1, *(37,) * group.dim)
    found = in_windows(predict_logits, model, x, 16, overlap=0.25)
    with torch.no_grad():
        expected = model(x[None])[0]
    ends = {0, 36, 37}  # of the volume; 36 is where the last voxels that are pooled begin, of which a window has one
    borders = {edge for start, stop in spans(37, 17, 4, 0.25) for edge in (start, stop, stop - 1)} - ends
    far = torch.tensor([min(abs(i - edge + 0.5) for edge in borders) > 1 for i in range(37)])
    chosen = torch.stack(torch.meshgrid(*[far] * group.dim, indexing="ij")).all(0)
    assert 0.1 < chosen.float().mean() < 1
    assert torch.allclose(found[:, chosen], expected[:, chosen], atol=1e-6)


@given(rest=st.integers(0, 60), window=st.integers(1, 40), stride=st.integers(1, 8), overlap=st.floats(0, 0.95))
def test_spans_cover_an_axis_begin_on_the_stride_and_overlap_as_asked(rest, window, stride, overlap):
    n = window + stride * rest
    found = spans(n, window, stride, overlap)
    assert found[0][0] == 0 and found[-1][1] == n
    assert all(start % stride == 0 and stop - start == window for start, stop in found)
    for (start, stop), (later, _) in pairwise(found):
        assert start < later and (later <= stop or window < stride)
        assert stop - later >= overlap * window - 1e-9 or later - start == stride


def test_weights_are_largest_in_the_middle_and_never_vanish():
    weights = _weights((5, 64))
    assert weights.max() == weights[2, 31] == weights[2, 32] and weights.min() == pytest.approx(1e-3)


def test_the_window_is_the_largest_that_fits(group):
    """The oracle: the bytes of a window of this side and of one a step larger, counted by hand."""
    model, size, classes = Local(group, stride=4), (102,) * group.dim, 3
    each, sides, kept = 10 ** (9 - 2 * group.dim), [], 10**6
    for room in (10**7, 3 * 10**7, 10**8):
        memory = resident() + 48 * 2**20 + room + kept
        side = choose_window(Known(model, each), size, classes, memory, kept=kept)[0] - 2

        def need(side):
            sums = 4 * (classes + 2) * min(102, side + 2) * 102 ** (group.dim - 1)
            return each * min(102, side + 2) ** group.dim + (sums if side < 100 else 0)

        slack = 2 * 2**20  # the process itself may grow by a little in between
        assert need(side) <= room + slack and (side == 100 or need(side + 4) > room - slack)
        sides.append(side)
    assert sides == sorted(sides) and sides[0] < 100
    assert choose_window(Known(model, 100), size, 3, None) == size
    assert choose_window(Known(model, 100), size, 3, 2**50) == size


def test_too_little_memory_is_told_with_what_is_needed(group):
    model = Local(group)
    with pytest.raises(ValueError, match=r"10M of memory are too little.*takes [0-9.]+[MG] in all"):
        predict_labels(model, torch.zeros(1, *(32,) * group.dim), memory=10 * 2**20)
    with pytest.raises(ValueError, match=re.escape("overlap is a share of a window from 0 to below 1, got 1.0")):
        predict_labels(model, torch.zeros(1, *(32,) * group.dim), overlap=1.0)


def test_more_than_256_classes_have_labels_too():
    model = Local(SO2, reach=0, classes=300)
    with torch.no_grad():
        model.last.bias[299] = 100
    labels = predict_labels(model, torch.zeros(1, 4, 5))
    assert labels.dtype == torch.int16 and (labels == 299).all()


def test_a_model_is_left_as_it_was():
    model = Local(SO2).train()
    model.extra = torch.nn.Dropout(1.0)
    model.forward = lambda x, inner=model.forward: inner(x) + model.extra(torch.ones(1))
    x = torch.randn(1, 6, 6)
    with torch.no_grad():
        expected = Local.forward(model, x[None])[0] + 1
    assert torch.equal(predict_logits(model, x), expected)
    assert model.training and model.extra.training


def test_the_appetite_of_a_network_is_that_of_its_largest_maps():
    """32 channels of 48^3 voxels, once from the convolution and once from the ReLU, in single precision."""
    model = Local(SO3, width=32)
    appetite = Appetite(model)
    appetite.learn((48, 48, 48), lambda: 48**3, 2**33)
    least = 2 * 32 * 4 * 48**3
    assert least <= appetite.of(48**3) <= 4 * least
    assert max(appetite.measured) * 8 >= 48**3 > max(appetite.measured)


def test_between_windows_that_were_measured_the_appetite_is_interpolated():
    appetite = Appetite(Local(SO2))
    appetite.measured = {100: 1000, 300: 2000}
    found = [appetite.of(voxels) / 1.5 for voxels in (10, 100, 200, 300, 900)]
    assert found == pytest.approx([1000, 1000, 1500, 2000, 6000], rel=1e-2)


def test_where_the_system_tells_nothing_all_layers_count(monkeypatch):
    monkeypatch.setattr("steerformer.infer.appetite.peak_of", lambda work: None)
    model = Local(SO2, reach=0, stride=1)
    appetite = Appetite(model)
    appetite.measure((10, 10))
    channels = 1 + 1 + 4 + 3 + 3  # pool, up, first, last, and the model itself
    assert appetite.measured == {100: 4 * 100 * channels}


def test_windows_are_joined_as_monai_joins_them(group):
    """Where both put windows in the same places."""
    inferers = pytest.importorskip("monai.inferers", reason="MONAI comes with the extra medical")
    model, x = Local(group, reach=2).eval(), torch.randn(1, *(20,) * group.dim)
    with torch.no_grad():
        expected = inferers.sliding_window_inference(x[None], (8,) * group.dim, 1, model, overlap=0.5, mode="gaussian")
    assert torch.allclose(in_windows(predict_logits, model, x, 8, overlap=0.5), expected[0], atol=1e-5)
