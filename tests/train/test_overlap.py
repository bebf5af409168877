"""Dice and HD95 of masks, against counting and against scipy's distance transforms."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from steerformer.data import IGNORE
from steerformer.train.overlap import Overlap, class_structures, hd95, overlap, overlaps, regions


def blob(shape, center, radius):
    """A ball on a grid."""
    places = np.indices(shape)
    middle = np.reshape(center, (-1, *[1] * len(shape)))
    return torch.from_numpy(((places - middle) ** 2).sum(0) <= radius**2)


def percentile_of_distances(predicted, truth, spacing):
    """The definition: surfaces by erosion, each surface voxel's distance to the other surface, the worse 95th."""
    edges = [mask.numpy() & ~ndimage.binary_erosion(mask.numpy()) for mask in (predicted, truth)]
    fields = [ndimage.distance_transform_edt(~edge, sampling=spacing) for edge in edges]
    return max(np.percentile(fields[1][edges[0]], 95), np.percentile(fields[0][edges[1]], 95))


PAIRS = {
    "images": ((20, 24), (9, 10), 6, (11, 13), 5, (1.0, 1.0)),
    "images with long pixels": ((20, 24), (9, 10), 6, (12, 13), 4, (0.5, 2.0)),
    "at the border": ((12, 12), (0, 3), 4, (11, 11), 3, (1.0, 1.0)),
    "volumes": ((10, 12, 11), (5, 5, 5), 4, (6, 4, 5), 3, (1.0, 1.0, 1.0)),
    "thick slices": ((10, 12, 9), (5, 5, 4), 4, (4, 7, 5), 3, (0.8, 0.8, 3.0)),
    "one voxel": ((8, 8, 8), (2, 2, 2), 0, (6, 5, 4), 0, (1.0, 2.0, 3.0)),
    "one slice": ((8, 8, 1), (3, 3, 0), 2, (4, 5, 0), 2, (1.0, 1.0, 5.0)),
}


@pytest.mark.parametrize(("shape", "at", "radius", "there", "other", "spacing"), PAIRS.values(), ids=PAIRS)
def test_hd95_is_the_percentile_of_scipys_distances(shape, at, radius, there, other, spacing):
    pytest.importorskip("monai", reason="HD95 is MONAI's, which comes with the extra medical")
    predicted, truth = blob(shape, at, radius), blob(shape, there, other)
    expected = percentile_of_distances(predicted, truth, spacing)
    assert hd95(predicted, truth, spacing) == pytest.approx(expected, rel=1e-5) and expected > 0
    assert hd95(truth, predicted, spacing) == pytest.approx(expected, rel=1e-5)
    assert hd95(truth, truth, spacing) == 0


def test_without_monai_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"of MONAI: pip install 'steerformer\[medical\]'"):
        hd95(blob((5, 5), (2, 2), 1), blob((5, 5), (2, 3), 1), (1.0, 1.0))


def test_dice_counts_voxels():
    predicted = torch.tensor([[True, True, False, False], [True, False, False, False]])
    truth = torch.tensor([[True, False, True, False], [True, False, True, True]])
    found = overlap(predicted, truth, spacing=None)
    assert found == Overlap("found", 2 * 2 / (3 + 5), None)
    assert overlap(truth, truth, spacing=None).dice == 1.0
    apart = overlap(predicted, ~predicted, spacing=None)
    assert apart.dice == 0.0 and apart.outcome == "found"


def test_what_is_missed_counts_and_what_is_nowhere_does_not():
    something, nothing = blob((6, 6), (2, 2), 2), torch.zeros(6, 6, dtype=torch.bool)
    assert overlap(nothing, something, spacing=(1.0, 1.0)) == Overlap("missed", 0.0, None)
    assert overlap(something, nothing, spacing=(1.0, 1.0)) == Overlap("invented", 0.0, None)
    assert overlap(nothing, nothing, spacing=(1.0, 1.0)) == Overlap("absent", None, None)


def test_each_class_is_compared_and_what_does_not_count_is_left_out():
    labels = torch.tensor([[0, 1, 1], [2, 2, IGNORE]])
    predicted = torch.tensor([[0, 1, 2], [2, 2, 1]])
    found = overlaps(predicted, labels, class_structures(("background", "a", "b", "c")))
    assert {name: value.dice for name, value in found.items()} == {"a": 2 / 3, "b": 4 / 5, "c": None}


def test_regions_join_the_labels_of_a_tumour():
    """Labels of the Decathlon, and those of the original challenge in another order."""
    classes = ("background", "edema", "non-enhancing tumor", "enhancing tumour")
    assert regions(classes) == {"enhancing": (3,), "core": (2, 3), "whole": (1, 2, 3)}
    other = ("background", "necrotic core", "Oedema", "Enhancing")
    assert regions(other) == {"enhancing": (3,), "core": (1, 3), "whole": (1, 2, 3)}
    labels, predicted = torch.tensor([[0, 1, 2, 3, 3]]), torch.tensor([[1, 2, 2, 2, 3]])
    found = {name: value.dice for name, value in overlaps(predicted, labels, regions(classes)).items()}
    assert found == {"enhancing": 2 / 3, "core": 6 / 7, "whole": 8 / 9}


@pytest.mark.parametrize("classes", [("background", "lesion"), ("background", "enhancing"), ("0", "1", "2", "3")])
def test_other_classes_have_no_regions(classes):
    assert regions(classes) == {}
