"""Cases: what is cut, padded, turned and drawn. Volumes whose values are their own coordinates are the oracle."""

import pickle

import pytest
import torch
from torch.testing import assert_close

from data.scan_files import blobs
from steerformer.config import Config
from steerformer.data import IGNORE, Cases, CasesConfig, DataError
from steerformer.data.base import ignore
from steerformer.data.prepare import prepare
from steerformer.data.sources import Labeled, Source, divide, load_sources

CLASSES = ("background", "rim", "core")


def coordinates(shape, spacing):
    axes = [torch.arange(n, dtype=torch.float32) * step for n, step in zip(shape, spacing, strict=True)]
    return torch.stack([torch.ones(shape), *torch.meshgrid(*axes, indexing="ij")])


def labeled(number, shape=(12, 13, 10), spacing=(1.0, 0.5, 2.0)):
    """Each voxel holds 1, then its place in millimeters; what lies outside, or half outside, holds less than 1."""
    labels = torch.from_numpy(blobs(shape, seed=number, classes=3)[1])
    return Labeled(coordinates(shape, spacing[: len(shape)]), labels, spacing[: len(shape)])


@pytest.fixture
def make(tmp_path):
    """Cases of a source, in the sets that a configuration asks for."""

    def make(count=8, *, shapes=None, spacing=(1.0, 0.5, 2.0), **settings):
        sources = []
        for number in range(count):
            path = tmp_path / f"{number}.txt"
            path.exists() or path.touch()
            shape = (shapes or [(12, 13, 10)])[number % len(shapes or [1])]
            case = labeled(number, shape, spacing)
            sources.append(Source(f"case {number}", (path,), lambda case=case: case))
        config = CasesConfig(**{"normalize": "none", "validation": 2, "test": 2} | settings)
        return load_sources(sources, CLASSES, config, ignore, where="here")

    return make


def places(x, spacing):
    """The voxel of the case that each voxel of a sample shows."""
    return (x[1:].movedim(0, -1) / torch.tensor(spacing)).round().long()


def look_up(labels, where):
    return labels[tuple(where.unbind(-1))]


def test_whole_cases_are_what_they_were_prepared_to(make):
    shapes = [(12, 13, 10), (9, 9, 9)]
    splits = make(shapes=shapes, normalize="image", spacing=(1.0, 1.0, 1.0))
    assert splits.classes == CLASSES and splits.test.names == tuple(f"case {n}" for n in splits.test.numbers.tolist())
    for index, number in enumerate(splits.test.numbers.tolist()):
        x, labels = splits.test[index]
        case = labeled(number, shapes[number % 2], (1.0, 1.0, 1.0))
        ready = prepare(case.x, case.spacing, splits.test.config)
        assert x.dtype == torch.float32 and labels.dtype == torch.int64
        assert_close(x, ready.x, rtol=1e-3, atol=1e-3)  # kept in half precision
        assert torch.equal(labels, case.labels.long())
        assert splits.test.spacing(index) == (1.0, 1.0, 1.0)
        assert torch.equal(splits.test.counts[index], labels.flatten().bincount(minlength=3))
        assert splits.test.present(index) == set(labels.unique().tolist())
    with pytest.raises(IndexError):
        splits.test[len(splits.test)]


@pytest.mark.parametrize("outside", ["ignore", "background"])
def test_whole_cases_to_train_on_are_padded_to_one_shape(make, outside):
    splits = make(shapes=[(12, 9, 10), (9, 13, 10)], outside=outside)
    for index, number in enumerate(splits.train.numbers.tolist()):
        x, labels = splits.train[index]
        assert x.shape[1:] == labels.shape == (12, 13, 10)
        inside = x[0] == 1
        case = labeled(number, [(12, 9, 10), (9, 13, 10)][number % 2])
        assert inside.sum() == case.labels.numel()
        assert (labels[~inside] == (IGNORE if outside == "ignore" else 0)).all()
        assert torch.equal(labels[inside], case.labels.long().flatten())
        box = inside.nonzero()
        before, after = box[0], torch.tensor(labels.shape) - 1 - box[-1]
        assert ((after - before) >= 0).all() and ((after - before) <= 1).all()  # in the middle


def test_cases_to_train_on_can_be_had_whole(make):
    splits = make(shapes=[(12, 9, 10), (9, 13, 10)], patch=4)
    for (x, labels), number in zip(splits.train.whole(), splits.train.numbers.tolist(), strict=True):
        case = labeled(number, [(12, 9, 10), (9, 13, 10)][number % 2])
        assert x.shape == case.x.shape and torch.equal(labels, case.labels.long())


@pytest.mark.parametrize("dim", [2, 3])
def test_patches_are_parts_of_cases(make, dim):
    splits = make(shapes=[(12, 13, 10)[:dim]], patch=(6, 5, 10)[:dim], foreground=0.5)
    starts = set()
    for epoch in range(12):
        splits.train.set_epoch(epoch)
        for index, number in enumerate(splits.train.numbers.tolist()):
            x, labels = splits.train[index]
            case = labeled(number, (12, 13, 10)[:dim])
            assert labels.shape == (6, 5, 10)[:dim]
            where = places(x, case.spacing)
            assert torch.equal(look_up(case.labels.long(), where), labels)
            start = where[(0,) * dim]
            steps = torch.stack(torch.meshgrid(*map(torch.arange, labels.shape), indexing="ij"), dim=-1)
            assert torch.equal(where, start + steps)  # straight
            starts.add(tuple(start.tolist()[:2]))
    assert len(starts) > 15


def test_patches_larger_than_a_case_are_padded(make):
    splits = make(shapes=[(4, 13, 7)], patch=8)
    x, labels = splits.train[0]
    assert labels.shape == (8, 8, 8)
    assert (labels[:2] == IGNORE).all() and (labels[6:] == IGNORE).all() and (labels[..., -1] == IGNORE).all()
    assert (labels[2:6, :, :7] >= 0).all() and (x[0, 2:6, :, :7] == 1).all()


@pytest.mark.parametrize("patch", [(6, 5, 4), (20, 20, 20)])
@pytest.mark.parametrize("foreground", [0.0, 1.0])
def test_patches_reach_over_the_edges_where_outside_is_background(make, patch, foreground):
    """What they show is right, their middle is a voxel of the case, and they leave it at either end of every axis."""
    splits = make(patch=patch, outside="background", foreground=foreground)
    middle = tuple(n // 2 for n in patch)
    firsts = torch.zeros(2, 3, dtype=torch.bool)
    for epoch in range(12):
        splits.train.set_epoch(epoch)
        for index, number in enumerate(splits.train.numbers.tolist()):
            x, labels = splits.train[index]
            inside, case = x[0] == 1, labeled(number)
            assert labels.shape == patch and inside[middle] and (labels[~inside] == 0).all()
            assert torch.equal(look_up(case.labels.long(), places(x, case.spacing)[inside]), labels[inside])
            assert foreground == 0 or labels[middle] > 0
            within = inside.nonzero()
            firsts |= torch.stack([within[0] > 0, within[-1] < torch.tensor(patch) - 1])
    assert firsts.all() or foreground == 1


def test_patches_favor_what_is_not_background(make):
    shape = [(24, 24, 24)]
    for share, low, high in ((1.0, 1.0, 1.0), (0.0, 0.1, 0.9)):
        splits = make(count=4, shapes=shape, patch=5, foreground=share, validation=0, test=0)
        hits = []
        for epoch in range(10):
            splits.train.set_epoch(epoch)
            hits += [bool((labels > 0).any()) for _, labels in (splits.train[i] for i in range(4))]
        assert low <= sum(hits) / len(hits) <= high


@pytest.mark.parametrize("outside", ["ignore", "background"])
@pytest.mark.parametrize("settings", [{}, {"patch": (7, 6, 5)}, {"patch": (7, 6, 20)}])
def test_cases_to_train_on_are_turned_with_their_labels(make, settings, outside):
    splits = make(train_rotation="any", outside=outside, **settings)
    for index, number in enumerate(splits.train.numbers.tolist()):
        case = labeled(number)
        x, labels = splits.train[index]
        check_turned(x, labels, case, outside=IGNORE if outside == "ignore" else 0)
        assert torch.equal(splits.train[index][0], x)
        splits.train.set_epoch(splits.train.epoch + 1)
        assert not torch.equal(splits.train[index][0], x)


def check_turned(x, labels, case, *, outside, exact=True):
    """Labels are those of the places that voxels show, and the places are those of a turned grid."""
    spacing = torch.tensor(case.spacing)
    inside, shown = x[0] > 1 - 1e-5, x[1:].movedim(0, -1)
    assert inside.sum() > 40
    voxel = shown[inside] / spacing
    sure = ((voxel - voxel.round()).abs() < 0.45).all(dim=-1)  # halfway, rounding decides
    expected = case.labels.long()[tuple(voxel.round().long().unbind(-1))]
    right = (expected == labels[inside])[sure].float().mean()
    assert sure.sum() > 20 and (right == 1 if exact else right > 0.8)
    mine = (inside.nonzero() * spacing).double()
    one, other = mine - mine.mean(dim=0), shown[inside].double() - shown[inside].double().mean(dim=0)
    R = torch.linalg.lstsq(one, other).solution.T
    assert_close(one @ R.T, other, rtol=0, atol=2e-3)
    assert_close(R @ R.T, torch.eye(len(R)).double(), rtol=0, atol=1e-3)
    assert torch.linalg.det(R) > 0 and (R - torch.eye(len(R))).abs().max() > 0.05
    far = x[0] == 0
    assert far.any() and (labels[far] == outside).all()


@pytest.mark.parametrize("dim", [2, 3])
def test_cases_to_test_on_are_turned_once_and_for_all(make, dim):
    splits = make(shapes=[(12, 13, 10)[:dim]], test_rotation="any")
    upright = make(shapes=[(12, 13, 10)[:dim]])
    for part, standing in ((splits.test, upright.test), (splits.validation, upright.validation)):
        x, labels = part[0]
        case = labeled(int(part.numbers[0]), (12, 13, 10)[:dim])
        check_turned(x, labels, case, outside=0, exact=False)
        volume = [float((found[0][1] > 0).sum()) for found in ([part[0]], [standing[0]])]
        assert volume[0] == pytest.approx(volume[1], rel=0.15)  # nothing is cut off
        part.set_epoch(3)
        assert torch.equal(part[0][0], x)
        assert not torch.equal(part[1][0][0, :3, :3], x[0, :3, :3])
    assert torch.equal(splits.train[0][0], upright.train[0][0])
    other = make(shapes=[(12, 13, 10)[:dim]], test_rotation="any", seed=1, test=6, validation=1)
    number = other.test.numbers.tolist().index(int(splits.test.numbers[0]))
    assert other.test[number][0].shape != splits.test[0][0].shape or not torch.equal(
        other.test[number][0], splits.test[0][0]
    )


def test_what_is_random_depends_on_seed_epoch_and_number_alone(make):
    first, again = make(patch=5), make(patch=5)
    ahead = pickle.loads(pickle.dumps(again.train))
    for part in (first.train, ahead):
        part.set_epoch(4)
    for index in (3, 0, 2):
        assert torch.equal(first.train[index][0], ahead[index][0])
    assert not torch.equal(make(patch=5, seed=0).train[0][0], first.train[0][0])  # another epoch


def test_sets_are_disjoint_and_as_large_as_asked_for():
    def numbers(**settings):
        return [part.tolist() for part in divide(20, CasesConfig(**settings), "here")]

    for settings, sizes in (
        ({}, [12, 4, 4]),
        ({"train": 5, "validation": 3, "test": 2}, [5, 3, 2]),
        ({"validation": 0, "test": 0}, [20, 0, 0]),
        ({"validation": 0.01, "test": 0.33}, [12, 1, 7]),
        ({"train": 0.5, "validation": 0.25, "test": 0.25}, [10, 5, 5]),
    ):
        found = numbers(**settings)
        assert [len(part) for part in found] == sizes
        assert len({number for part in found for number in part}) == sum(sizes)
        assert all(part == sorted(part) for part in found)
    assert numbers()[2] == numbers(validation=1, train=2)[2] != numbers(seed=1)[2]
    assert numbers()[1] == numbers(train=2)[1]
    for settings in ({"train": 13}, {"validation": 10, "test": 10}, {"test": 30, "train": 1}):
        with pytest.raises(DataError, match=r"here has 20 cases, got .*validation=.* and test="):
            numbers(**settings)


def test_cases_are_prepared_once_and_again_when_something_changes(make, tmp_path, cache_folder, monkeypatch):
    told = []
    make()
    assert len(list((cache_folder / "cases").iterdir())) == 8
    monkeypatch.setattr("steerformer.data.sources.prepare", lambda *rest: told.append(rest) or prepare(*rest))
    make(seed=3, patch=4, test_rotation="any", validation=1)  # none of this is a matter of preparation
    assert told == []
    (tmp_path / "3.txt").write_text("changed")
    make()
    assert len(told) == 1
    make(crop=1)
    assert len(told) == 9
    cut = make().test.stored[0].path
    cut.write_bytes(cut.read_bytes()[:-7])  # a damaged file is made anew
    make()
    assert len(told) == 10


def test_all_cases_have_as_many_channels_and_axes(make, tmp_path):
    def load(*cases):
        sources = [Source(f"{case.x.shape}", (tmp_path / "0.txt",), lambda case=case: case) for case in cases]
        load_sources(sources, CLASSES, CasesConfig(test=0, validation=0), ignore, where="here")

    make()
    one, flat = labeled(0), labeled(0, (8, 8))
    with pytest.raises(DataError, match=r"0\.txt has 4 channels, but .*0\.txt has 2; set channels"):
        load(one, Labeled(one.x[:2], one.labels, one.spacing))
    with pytest.raises(DataError, match="are an image and a volume"):
        load(one, flat)
    with pytest.raises(DataError, match="patch has 2 numbers, but the data have 3 axes"):
        make(patch=(4, 4))


def test_cases_without_foreground_can_be_cut(tmp_path):
    (tmp_path / "a").touch()
    empty = Labeled(torch.rand(1, 9, 9), torch.zeros(9, 9, dtype=torch.uint8), (1.0, 1.0))
    config: Config = CasesConfig(patch=4, test=0, validation=0)
    splits = load_sources([Source("a", (tmp_path / "a",), lambda: empty)], CLASSES, config, ignore, where="here")
    assert isinstance(splits.train, Cases) and splits.train[0][1].shape == (4, 4)
    assert len(splits.test) == 0 and splits.test.names == ()
