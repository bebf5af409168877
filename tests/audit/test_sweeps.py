"""Accuracy and Dice against the rotation angle."""

import torch
from torch import nn

from audit.segmenters import Bright, FirstHalf, ball, scan
from steerformer import SO2, SO3, FieldType
from steerformer.audit import accuracy_by_angle, dice_sweep, sweep_axes


class BrighterHalf(nn.Module):
    """Whether the first or the second half is brighter: wrong after a rotation by 180 degrees."""

    def __init__(self, group):
        super().__init__()
        self.in_type, self.out_type = FieldType.image(group, 1), FieldType.image(group, 2)

    def forward(self, x):
        first, second = x.flatten(3).sum(-1)[:, 0].chunk(2, dim=1)
        return torch.stack([first.sum(1), second.sum(1)], dim=1)


def halves(group, count=6, size=8):
    """Inputs whose first or second half along the first axis is 1."""
    labels = torch.arange(count) % 2
    x = torch.zeros(count, 1, *(size,) * group.dim)
    for i, label in enumerate(labels.tolist()):
        x[i, 0].narrow(0, label * size // 2, size // 2).fill_(1.0)
    return x, labels


def test_accuracy_falls_where_rotation_swaps_the_classes(group):
    x, labels = halves(group)
    found = accuracy_by_angle(BrighterHalf(group), x, labels, [0, 180, 360], batch_size=4)
    assert all(values[0] == values[2] == 1.0 for values in found.values())
    # 180 degrees about any axis but the first swap the halves
    assert [values[1] for values in found.values()] == ([0.0] if group is SO2 else [1.0, 0.0, 0.0])


def test_equivariant_segmentation_agrees_with_itself(group):
    ticks = []
    rotations = [group.random_rotation(torch.Generator().manual_seed(1))]
    options = {"angles": (0, 90, 37), "rotations": rotations}
    found = dice_sweep(Bright(group), [ball(group)], **options, progress=lambda: ticks.append(1))
    assert found.upright == 1.0 and found.angles == [0.0, 90.0, 37.0] and found.axes.keys() == sweep_axes(group).keys()
    assert len(ticks) == 3 * len(found.axes) + 1
    for at_0, at_90, at_37 in found.axes.values():
        assert at_0.agreement == at_0.dice == at_0.ceiling == 1.0
        assert at_90.agreement == at_90.dice == at_90.ceiling == 1.0
        assert 0.85 < at_37.agreement <= 1 and at_37.ceiling > 0.85 and at_37.dice > 0.85
    assert found.random[0].agreement > 0.85


def test_segmentation_that_does_not_rotate_is_detected(group):
    """180 degrees about any axis but the first swap the halves, so that no voxel agrees."""
    found = dice_sweep(FirstHalf(group), [ball(group, (8,) * group.dim)], angles=(0, 180))
    agreement = [scores[1].agreement for scores in found.axes.values()]
    assert agreement == ([0.0] if group is SO2 else [1.0, 0.0, 0.0])
    assert all(scores[0].agreement == 1.0 and scores[1].ceiling > 0.99 for scores in found.axes.values())


def test_anisotropic_voxels_are_rotated_in_physical_space():
    """A ball stays a ball if voxels are twice as high; rotated on the grid it would become flat."""
    case = ball(SO3, (11, 11, 6), spacing=(1.0, 1.0, 2.0), radius=4.0)
    found = dice_sweep(Bright(SO3), [case], angles=(90,))
    assert min(scores[0].agreement for scores in found.axes.values()) > 0.85


def test_dice_with_the_truth_is_averaged_over_cases(group):
    """One correct case, and a spurious structure in the other: Dice 1 and 0."""
    good = ball(group)
    wrong = scan("wrong", good.x, torch.zeros_like(good.labels), good.spacing)
    empty = scan("empty", torch.zeros_like(good.x), torch.zeros_like(good.labels), good.spacing)
    found = dice_sweep(Bright(group), [good, wrong], angles=(0,))
    assert found.upright == 0.5 and all(scores[0].dice == 0.5 for scores in found.axes.values())
    assert dice_sweep(Bright(group), [empty], angles=(0,)).upright == 1.0
