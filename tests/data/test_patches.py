"""Patches: their position, padding and rotation."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator
from torch.testing import assert_close

from data.coordinate_scans import labeled_scan, load_scans, look_up, voxels
from steerformer.data import IGNORE


@pytest.fixture
def load(tmp_path):
    return partial(load_scans, tmp_path)


@pytest.mark.parametrize("dim", [2, 3])
def test_patches_are_boxes_in_cases(load, dim):
    splits = load(shapes=[(12, 13, 10)[:dim]], patch_size=(6, 5, 10)[:dim], foreground=0.5)
    starts = set()
    for epoch in range(12):
        splits.train.set_epoch(epoch)
        for index, number in enumerate(splits.train.numbers.tolist()):
            x, labels = splits.train[index]
            case = labeled_scan(number, (12, 13, 10)[:dim])
            assert labels.shape == (6, 5, 10)[:dim]
            where = voxels(x, case.spacing)
            assert torch.equal(look_up(case.labels.long(), where), labels)
            start = where[(0,) * dim]
            steps = torch.stack(torch.meshgrid(*map(torch.arange, labels.shape), indexing="ij"), dim=-1)
            assert torch.equal(where, start + steps)
            starts.add(tuple(start.tolist()[:2]))
    assert len(starts) > 15


def test_patches_larger_than_a_case_are_padded(load):
    splits = load(shapes=[(4, 13, 7)], patch_size=8)
    x, labels = splits.train[0]
    assert labels.shape == (8, 8, 8)
    assert (labels[:2] == IGNORE).all() and (labels[6:] == IGNORE).all() and (labels[..., -1] == IGNORE).all()
    assert (labels[2:6, :, :7] >= 0).all() and (x[0, 2:6, :, :7] == 1).all()


@pytest.mark.parametrize("patch_size", [(6, 5, 4), (20, 20, 20)])
@pytest.mark.parametrize("foreground", [0.0, 1.0])
def test_patches_reach_over_the_edges_with_background_padding(load, patch_size, foreground):
    """Patches show the right voxels, are centered on a voxel of the case, and leave it at both ends of every axis."""
    splits = load(patch_size=patch_size, padding_label="background", foreground=foreground)
    center = tuple(n // 2 for n in patch_size)
    over_edges = torch.zeros(2, 3, dtype=torch.bool)
    for epoch in range(12):
        splits.train.set_epoch(epoch)
        for index, number in enumerate(splits.train.numbers.tolist()):
            x, labels = splits.train[index]
            inside, case = x[0] == 1, labeled_scan(number)
            assert labels.shape == patch_size and inside[center] and (labels[~inside] == 0).all()
            assert torch.equal(look_up(case.labels.long(), voxels(x, case.spacing)[inside]), labels[inside])
            assert foreground == 0 or labels[center] > 0
            within = inside.nonzero()
            over_edges |= torch.stack([within[0] > 0, within[-1] < torch.tensor(patch_size) - 1])
    assert over_edges.all() or foreground == 1


def test_patches_favor_the_foreground(load):
    for foreground, low, high in ((1.0, 1.0, 1.0), (0.0, 0.1, 0.9)):
        splits = load(count=4, shapes=[(24, 24, 24)], patch_size=5, foreground=foreground, validation=0, test=0)
        hits = []
        for epoch in range(10):
            splits.train.set_epoch(epoch)
            hits += [bool((labels > 0).any()) for _, labels in (splits.train[i] for i in range(4))]
        assert low <= sum(hits) / len(hits) <= high


@pytest.mark.parametrize("padding_label", ["ignore", "background"])
@pytest.mark.parametrize("options", [{}, {"patch_size": (7, 6, 5)}, {"patch_size": (7, 6, 20)}])
def test_training_cases_are_rotated_with_their_labels(load, options, padding_label):
    splits = load(train_rotation="any", padding_label=padding_label, **options)
    for index, number in enumerate(splits.train.numbers.tolist()):
        x, labels = splits.train[index]
        check_rotated(x, labels, labeled_scan(number), padding_label=IGNORE if padding_label == "ignore" else 0)
        assert torch.equal(splits.train[index][0], x)
        splits.train.set_epoch(splits.train.epoch + 1)
        assert not torch.equal(splits.train[index][0], x)


def test_training_cases_are_scaled(load):
    """The scale is found from the coordinates that voxels show; rotation and scaling go together."""
    splits, scales = load(train_rotation="any", train_scaling=0.25, patch_size=(7, 6, 20)), []
    for epoch in range(12):
        splits.train.set_epoch(epoch)
        x, labels = splits.train[0]
        case = labeled_scan(int(splits.train.numbers[0]))
        inside, spacing = x[0] > 1 - 1e-5, torch.tensor(case.spacing)
        if inside.sum() < 100:
            continue
        grid, shown = (inside.nonzero() * spacing).double(), x[1:].movedim(0, -1)[inside].double()
        A = torch.linalg.lstsq(grid - grid.mean(0), shown - shown.mean(0)).solution
        scales.append(float(torch.linalg.det(A).abs()) ** (-1 / 3))
        check_rotated(x, labels, case, padding_label=IGNORE, scale=scales[-1])
    assert len(scales) > 4 and 0.79 < min(scales) < 0.95 and 1.05 < max(scales) < 1.26


def test_scaling_alone_keeps_the_orientation(load):
    splits = load(train_scaling=0.5, patch_size=(7, 6, 5))
    x, _ = splits.train[0]
    inside = x[0] > 1 - 1e-5
    for axis in range(3):
        along = x[1 + axis].diff(dim=axis)[
            inside.narrow(axis, 0, x.shape[1 + axis] - 1) & inside.narrow(axis, 1, x.shape[1 + axis] - 1)
        ]
        across = x[1 + axis].diff(dim=(axis + 1) % 3)
        assert (along > 0).all() and float(along.std()) < 1e-4 and float(across[across.abs() < 1].abs().median()) < 1e-4


def test_intensities_are_changed_about_the_background_only(load):
    with pytest.raises(ValueError, match="train_intensity needs normalize: background"):
        load(train_intensity=0.3, normalize="image")


def test_intensities_change_and_keep_the_background(load):
    options = {"patch_size": 6, "normalize": "background"}
    plain, changed = load(**options), load(**options, train_intensity=0.3)
    x, y = plain.train[0][0], changed.train[0][0]
    assert torch.equal(plain.train[0][1], changed.train[0][1])
    assert not torch.allclose(x[1:], y[1:]) and torch.equal(x == 0, y == 0) and torch.equal(x.sign(), y.sign())
    for before, after in zip(x[1:].abs(), y[1:].abs(), strict=True):
        a, b = before[before > 0].double().log(), after[before > 0].double().log()
        line = np.polyfit(a.numpy(), b.numpy(), 1)  # contrast and gamma are a straight line of logarithms
        assert np.allclose(np.polyval(line, a.numpy()), b.numpy(), atol=1e-4)
        assert 1 / 1.3 - 1e-3 < line[0] < 1.3 + 1e-3 and abs(line[1]) < np.log(1.3) + 1e-3


def shares_at(labels, voxel):
    """Shares (point, label) of all labels at voxel coordinates, by scipy's linear interpolation."""
    one_hot = torch.nn.functional.one_hot(labels.long()).double().numpy()
    axes = [np.arange(n) for n in labels.shape]
    places = np.clip(voxel.double().numpy(), 0, np.array(labels.shape) - 1)
    return torch.from_numpy(RegularGridInterpolator(axes, one_hot)(places))


def check_rotated(x, labels, case, *, padding_label, scale=1.0):
    """Labels belong to the coordinates that voxels show, and the coordinates are those of a rotated grid."""
    spacing = torch.tensor(case.spacing)
    inside, shown = x[0] > 1 - 1e-5, x[1:].movedim(0, -1)
    assert inside.sum() > 40
    shares = shares_at(case.labels, shown[inside] / spacing)
    highest, expected = shares.max(dim=-1)
    unambiguous = highest > 0.51
    assert unambiguous.sum() > 20 and torch.equal(expected[unambiguous], labels[inside][unambiguous])
    grid = (inside.nonzero() * spacing).double()
    one, other = grid - grid.mean(dim=0), shown[inside].double() - shown[inside].double().mean(dim=0)
    R = torch.linalg.lstsq(one, other).solution.T
    assert_close(one @ R.T, other, rtol=0, atol=2e-3)
    assert_close(R @ R.T, torch.eye(len(R)).double() / scale**2, rtol=0, atol=1e-3)
    assert torch.linalg.det(R) > 0 and (R - torch.eye(len(R))).abs().max() > 0.05
    outside = x[0] == 0
    assert outside.any() and (labels[outside] == padding_label).all()


@pytest.mark.parametrize("dim", [2, 3])
def test_test_cases_have_a_fixed_rotation(load, dim):
    shapes = [(12, 13, 10)[:dim]]
    splits, upright = load(shapes=shapes, test_rotation="any"), load(shapes=shapes)
    for rotated_part, upright_part in ((splits.test, upright.test), (splits.validation, upright.validation)):
        x, labels = rotated_part[0]
        case = labeled_scan(int(rotated_part.numbers[0]), shapes[0])
        check_rotated(x, labels, case, padding_label=0)
        rotated, expected = (float((part[0][1] > 0).sum()) for part in (rotated_part, upright_part))
        assert rotated == pytest.approx(expected, rel=0.15)  # nothing is cut off
        rotated_part.set_epoch(3)
        assert torch.equal(rotated_part[0][0], x)
        assert not torch.equal(rotated_part[1][0][0, :3, :3], x[0, :3, :3])
    assert torch.equal(splits.train[0][0], upright.train[0][0])
    other = load(shapes=shapes, test_rotation="any", seed=1, test=6, validation=1)
    index = other.test.numbers.tolist().index(int(splits.test.numbers[0]))
    assert other.test[index][0].shape != splits.test[0][0].shape or not torch.equal(
        other.test[index][0], splits.test[0][0]
    )
