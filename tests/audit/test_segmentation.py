"""Segmentations under rotations: what turns with the scan agrees with itself, what does not is seen."""

import pytest
import torch
from torch import nn

from infer.networks import Local
from steerformer import SO2, SO3, FieldType, models
from steerformer.audit import Case, check_segmentation, logit_change, sweep, sweep_axes
from steerformer.audit.logits import LogitChange, joined
from steerformer.infer import Appetite
from steerformer.infer.memory import resident

SIZES = {2: (15, 18), 3: (9, 11, 10)}


class Bright(nn.Module):
    """Class 1 where the input is bright, which a rotation does not change."""

    def __init__(self, group):
        super().__init__()
        self.in_type, self.out_type = FieldType.image(group, 1), FieldType.image(group, 2)

    def forward(self, x):
        return 20 * torch.cat([0.5 - x, x - 0.5], dim=1)


class FirstHalf(Bright):
    """Class 1 in the first half of the grid, whatever is there."""

    def forward(self, x):
        there = torch.linspace(1, -1, x.shape[2]).view(-1, *[1] * (x.ndim - 3)).expand(x.shape[2:])
        return 20 * torch.stack([-there, there])[None]


def ball(group, size=None, *, spacing=None, radius=3.2):
    """A bright ball off the center, smooth at its surface."""
    from steerformer.fields import voxel_coordinates

    size, spacing = size or SIZES[group.dim], spacing or (1.0,) * group.dim
    places = voxel_coordinates(size, spacing) - torch.tensor([1.0] + [0.0] * (group.dim - 1)).double()
    x = (radius + 0.5 - places.norm(dim=-1)).clamp(0, 1).float()[None]
    return Case("ball", x, (x[0] > 0.5).long(), spacing)


def unet(group):
    layers = {"degrees": 2, "widths": [[2], [2]], "kernel_size": 3, "num_heads": 2, "classes": 2, "head": "scalar"}
    return models.build({"kind": "unet", "group": group.name, **layers}).eval()


def test_logits_of_voxels_are_compared_with_turned_ones(group):
    """The oracle: a plain network, turned by hand."""
    model, x = Local(group).eval(), torch.randn(2, 1, *(6,) * group.dim)
    R = next(R for R in group.grid_rotations() if torch.equal(model.in_type.rotate(x, R), torch.rot90(x, 1, (2, 3))))
    found = logit_change(model, x, [R])
    with torch.no_grad():
        upright, turned = model(x), model(torch.rot90(x, 1, (2, 3)))
    expected = torch.rot90(upright, 1, (2, 3))
    mean = upright.transpose(0, 1).flatten(1).mean(1).view(1, -1, *[1] * group.dim)
    assert found.worst == pytest.approx(((turned - expected).norm() / (upright - mean).norm()).item(), rel=1e-5)
    assert found.agreement == pytest.approx((turned.argmax(1) == expected.argmax(1)).double().mean().item())
    assert found.worst > 0.1


def test_changes_of_several_batches_are_joined():
    found = joined([LogitChange(3, 0.1, 0.5, 0.9), LogitChange(3, 0.3, 0.4, 0.7)])
    assert (found.rotations, found.worst) == (3, 0.5)
    assert (found.mean, found.agreement) == (pytest.approx(0.2), pytest.approx(0.8))


def test_what_a_rotation_does_not_change_agrees_with_itself(group):
    ticks = []
    rotations = [group.random_rotation(torch.Generator().manual_seed(1))]
    case = ball(group)
    found = sweep(Bright(group), [case], angles=(0, 90, 37), rotations=rotations, progress=lambda: ticks.append(1))
    assert found.upright == 1.0 and found.angles == [0.0, 90.0, 37.0] and found.axes.keys() == sweep_axes(group).keys()
    assert len(ticks) == 3 * len(found.axes) + 1
    for straight, quarter, askew in found.axes.values():
        assert straight.agreement == straight.dice == straight.ceiling == 1.0
        assert quarter.agreement == quarter.dice == quarter.ceiling == 1.0
        assert 0.85 < askew.agreement <= 1 and askew.ceiling > 0.85 and askew.dice > 0.85
    assert found.random[0].agreement > 0.85


def test_what_stands_still_while_the_scan_turns_is_seen(group):
    """Half a turn about any axis but the first swaps the halves: no voxel agrees."""
    found = sweep(FirstHalf(group), [ball(group, (8,) * group.dim)], angles=(0, 180))
    agreement = [scores[1].agreement for scores in found.axes.values()]
    assert agreement == ([0.0] if group is SO2 else [1.0, 0.0, 0.0])
    assert all(scores[0].agreement == 1.0 and scores[1].ceiling > 0.99 for scores in found.axes.values())


def test_long_voxels_are_turned_in_space_not_on_the_grid():
    """A ball stays one when voxels are twice as high; turned on the grid it would become flat."""
    case = ball(SO3, (11, 11, 6), spacing=(1.0, 1.0, 2.0), radius=4.0)
    found = sweep(Bright(SO3), [case], angles=(90,))
    assert min(scores[0].agreement for scores in found.axes.values()) > 0.85


def test_cases_are_compared_with_their_truth_and_averaged(group):
    """One case is right, of the other the truth is empty and something was found: Dice 1 and 0."""
    good = ball(group)
    wrong = Case("wrong", good.x, torch.zeros_like(good.labels), good.spacing)
    empty = Case("empty", torch.zeros_like(good.x), torch.zeros_like(good.labels), good.spacing)
    found = sweep(Bright(group), [good, wrong], angles=(0,))
    assert found.upright == 0.5 and all(scores[0].dice == 0.5 for scores in found.axes.values())
    assert sweep(Bright(group), [empty], angles=(0,)).upright == 1.0


def test_the_check_tells_a_steerable_network_from_a_plain_one(group):
    cases = [ball(group), ball(group, tuple(n + 1 for n in SIZES[group.dim]))]
    plain = Local(group, classes=2).eval()
    found = check_segmentation(unet(group), cases, angles=(0, 40), rotations=1, control=(plain, cases))
    assert found.is_equivariant and found.grid.worst < 1e-4 and found.grid.agreement > 0.999
    assert found.control is not None and len(found.control.random) == 1
    assert {"head", "logits"} <= {error.name for error in found.layers_grid}
    assert max(error.total for error in found.layers_grid) < 1e-4
    assert found.layers_arbitrary and found.cases == ("ball", "ball")
    assert found.as_json()["sweep"]["angles"] == [0.0, 40.0] and found.as_json()["is_equivariant"] is True
    bad = check_segmentation(plain, cases, angles=(0,), rotations=0)
    assert not bad.is_equivariant and bad.control is None and bad.grid.worst > 0.01


def test_of_a_case_that_is_too_large_the_middle_turns(group, monkeypatch):
    """A megabyte for every voxel, and room for 80 of them."""
    from steerformer.audit import segmentation

    seen, original = [], segmentation.logit_change
    monkeypatch.setattr(segmentation, "logit_change", lambda *a: seen.append(a[1]) or original(*a))
    monkeypatch.setattr(Appetite, "of", lambda self, voxels: voxels * 2**20)
    monkeypatch.setattr(Appetite, "learn", lambda *arguments: None)
    case = ball(group)
    memory = resident() + (48 + 80) * 2**20
    assert check_segmentation(Bright(group), [case], angles=(0,), rotations=0, memory=memory).is_equivariant
    sides = seen[0].shape[2:]
    assert len(set(sides)) == 1 and 20 < seen[0].numel() <= 80 < case.x.numel()
    starts = [(n - side) // 2 for n, side in zip(case.labels.shape, sides, strict=True)]
    middle = tuple(slice(start, start + sides[0]) for start in starts)
    assert torch.equal(seen[0], case.x[(None, slice(None), *middle)])


def test_a_network_that_knows_of_long_voxels_is_turned_by_what_keeps_them():
    layers = {"degrees": 2, "widths": [[2], [2]], "kernel_size": 3, "depth": 0, "spacing": [1.0, 1.0, 2.0]}
    model = models.build({"kind": "unet", "group": "SO3", **layers}).eval()
    found = check_segmentation(model, [ball(SO3, spacing=(1.0, 1.0, 2.0))], angles=(0,), rotations=1)
    assert found.is_equivariant and found.grid.rotations == 4  # half a turn about each axis, a quarter about the last
    assert found.layers_arbitrary == []
