"""Dice of masks against counting by hand, and the structures that are compared."""

import pytest
import torch

from steerformer.data import IGNORE
from steerformer.metrics.hausdorff import hd95
from steerformer.metrics.overlap import Overlap, class_structures, overlap, overlaps, tumor_regions


def test_dice_counts_voxels():
    predicted = torch.tensor([[True, True, False, False], [True, False, False, False]])
    truth = torch.tensor([[True, False, True, False], [True, False, True, True]])
    found = overlap(predicted, truth, spacing=None)
    assert found == Overlap("found", 2 * 2 / (3 + 5), None)
    assert overlap(truth, truth, spacing=None).dice == 1.0
    apart = overlap(predicted, ~predicted, spacing=None)
    assert apart.dice == 0.0 and apart.outcome == "found"


def test_missed_and_spurious_structures_score_zero_and_absent_ones_do_not_count():
    empty = torch.zeros(6, 6, dtype=torch.bool)
    square = empty.clone()
    square[1:4, 1:4] = True
    assert overlap(empty, square, spacing=(1.0, 1.0)) == Overlap("missed", 0.0, None)
    assert overlap(square, empty, spacing=(1.0, 1.0)) == Overlap("spurious", 0.0, None)
    assert overlap(empty, empty, spacing=(1.0, 1.0)) == Overlap("absent", None, None)


def test_hd95_is_measured_if_the_spacing_is_given():
    truth = torch.zeros(6, 6, dtype=torch.bool)
    truth[1:4, 1:4] = True
    predicted = truth.roll(1, dims=0)
    expected = hd95(predicted, truth, (2.0, 1.0))
    assert overlap(predicted, truth, spacing=(2.0, 1.0)) == Overlap("found", 2 / 3, expected) and expected == 2.0
    assert overlap(predicted, truth, spacing=None).hd95 is None


def test_ignored_voxels_are_left_out():
    labels = torch.tensor([[0, 1, 1], [2, 2, IGNORE]])
    predicted = torch.tensor([[0, 1, 2], [2, 2, 1]])
    found = overlaps(predicted, labels, class_structures(("background", "a", "b", "c")))
    assert {name: value.dice for name, value in found.items()} == {"a": 2 / 3, "b": 4 / 5, "c": None}


def test_present_structures_are_missed_rather_than_absent():
    """A structure that is too small for the grid, and in no prediction."""
    labels = torch.zeros(2, 2, dtype=torch.long)
    structures = class_structures(("background", "a", "b"))
    found = overlaps(labels, labels, structures, present={0, 1})
    assert found == {"a": Overlap("missed", 0.0, None), "b": Overlap("absent", None, None)}


def test_tumor_regions_join_labels():
    """Labels of the Decathlon, and those of the original challenge in another order."""
    classes = ("background", "edema", "non-enhancing tumor", "enhancing tumour")
    assert tumor_regions(classes) == {"enhancing": (3,), "core": (2, 3), "whole": (1, 2, 3)}
    other = ("background", "necrotic core", "Oedema", "Enhancing")
    assert tumor_regions(other) == {"enhancing": (3,), "core": (1, 3), "whole": (1, 2, 3)}
    labels, predicted = torch.tensor([[0, 1, 2, 3, 3]]), torch.tensor([[1, 2, 2, 2, 3]])
    found = {name: value.dice for name, value in overlaps(predicted, labels, tumor_regions(classes)).items()}
    assert found == {"enhancing": 2 / 3, "core": 6 / 7, "whole": 8 / 9}


@pytest.mark.parametrize("classes", [("background", "lesion"), ("background", "enhancing"), ("0", "1", "2", "3")])
def test_other_classes_have_no_regions(classes):
    assert tumor_regions(classes) == {}
