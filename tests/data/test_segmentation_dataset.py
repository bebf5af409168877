"""Segmentation data sets: whole cases, padding, random numbers."""

import pickle
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from data.coordinate_scans import CLASSES, labeled_scan, load_scans
from steerformer.data import IGNORE, SegmentationDataConfig, SegmentationDataset
from steerformer.data.cases import CaseFiles, load_cases
from steerformer.data.dataset import no_progress
from steerformer.data.preprocessing import preprocess
from steerformer.io.scans import Scan

SHAPES = ((12, 9, 10), (9, 13, 10))


@pytest.fixture
def load(tmp_path):
    return partial(load_scans, tmp_path)


def test_whole_cases_are_the_preprocessed_scans(load):
    shapes = [(12, 13, 10), (9, 9, 9)]
    splits = load(shapes=shapes, normalize="image", spacing=(1.0, 1.0, 1.0))
    assert splits.classes == CLASSES and splits.test.names == tuple(f"case {n}" for n in splits.test.numbers.tolist())
    for index, number in enumerate(splits.test.numbers.tolist()):
        x, labels = splits.test[index]
        case = labeled_scan(number, shapes[number % 2], (1.0, 1.0, 1.0))
        ready = preprocess(case.x, case.spacing, splits.test.config)
        assert x.dtype == torch.float32 and labels.dtype == torch.int64
        assert_close(x, ready.x, rtol=1e-3, atol=1e-3)  # cached in half precision
        assert torch.equal(labels, case.labels.long())
        assert splits.test.spacing(index) == (1.0, 1.0, 1.0)
        assert torch.equal(splits.test.counts[index], labels.flatten().bincount(minlength=3))
        assert splits.test.present(index) == set(labels.unique().tolist())
    with pytest.raises(IndexError):
        splits.test[len(splits.test)]


@pytest.mark.parametrize("dim, kind", [(2, "image"), (3, "volume")])
def test_case_is_a_scan_with_labels(load, dim, kind):
    test = load(count=3, shapes=[(12, 13, 10)[:dim]], validation=0).test
    scan = test.scan(-1)
    assert scan.name == test.names[-1] and scan.kind == kind and scan.spacing == test.spacing(-1)
    assert torch.equal(scan.x, test[-1][0]) and torch.equal(scan.labels, test[-1][1])


@pytest.mark.parametrize("padding_label", ["ignore", "background"])
def test_whole_training_cases_are_padded_to_one_shape(load, padding_label):
    splits = load(shapes=SHAPES, padding_label=padding_label)
    for index, number in enumerate(splits.train.numbers.tolist()):
        x, labels = splits.train[index]
        assert x.shape[1:] == labels.shape == (12, 13, 10)
        inside = x[0] == 1
        case = labeled_scan(number, SHAPES[number % 2])
        assert inside.sum() == case.labels.numel()
        assert (labels[~inside] == (IGNORE if padding_label == "ignore" else 0)).all()
        assert torch.equal(labels[inside], case.labels.long().flatten())
        box = inside.nonzero()
        before, after = box[0], torch.tensor(labels.shape) - 1 - box[-1]
        assert ((after - before) >= 0).all() and ((after - before) <= 1).all()  # centered


def test_whole_gives_training_cases_without_patches(load):
    splits = load(shapes=SHAPES, patch_size=4)
    for (x, labels), number in zip(splits.train.whole(), splits.train.numbers.tolist(), strict=True):
        case = labeled_scan(number, SHAPES[number % 2])
        assert x.shape == case.x.shape and torch.equal(labels, case.labels.long())


def test_random_numbers_depend_on_seed_epoch_and_case_only(load):
    first, again = load(patch_size=5), load(patch_size=5)
    ahead = pickle.loads(pickle.dumps(again.train))
    for part in (first.train, ahead):
        part.set_epoch(4)
    for index in (3, 0, 2):
        assert torch.equal(first.train[index][0], ahead[index][0])
    assert not torch.equal(load(patch_size=5, seed=0).train[0][0], first.train[0][0])  # another epoch


def test_cases_without_foreground_have_patches(tmp_path):
    (tmp_path / "a").touch()
    labels = torch.zeros(9, 9, dtype=torch.uint8)
    empty = Scan(torch.rand(1, 9, 9), (1.0, 1.0), tmp_path / "a", "image", labels=labels)
    config = SegmentationDataConfig(patch_size=4, test=0, validation=0)
    splits = load_cases([CaseFiles("a", (tmp_path / "a",), lambda: empty)], CLASSES, config, no_progress, where="here")
    assert isinstance(splits.train, SegmentationDataset) and splits.train[0][1].shape == (4, 4)
    assert len(splits.test) == 0 and splits.test.names == ()


def test_passes_repeat_samples_with_augmentation_of_their_own(load):
    """As many epochs of one pass would: pass p of epoch e of three is epoch 3 e + p of one."""
    whole, single = load(patch_size=6, train_rotation="any").train, load(patch_size=6, train_rotation="any").train
    whole.passes = 3
    assert len(whole) == 3 * len(single)
    for epoch in range(2):
        whole.set_epoch(epoch)
        for number in range(3):
            single.set_epoch(3 * epoch + number)
            for index in range(len(single)):
                assert torch.equal(whole[number * len(single) + index][0], single[index][0])


def test_subset_seed_changes_the_training_cases_only(load):
    one, other = load(train=2), load(train=2, subset_seed=1)
    assert one.train.names != other.train.names
    assert one.test.names == other.test.names and one.validation.names == other.validation.names
    assert not set(other.train.names) & {*one.test.names, *one.validation.names}
    assert set(load().train.names) == set(load(subset_seed=1).train.names)


def test_a_fraction_needs_a_rotation():
    with pytest.raises(ValueError, match=r"train_rotated 0.5 needs train_rotation: any, got none"):
        SegmentationDataConfig(train_rotated=0.5)


def test_a_fraction_of_the_training_samples_is_rotated(load):
    upright = load(shapes=SHAPES).train
    part = load(shapes=SHAPES, train_rotation="any", train_rotated=0.4).train
    changed = []
    for epoch in range(40):
        part.set_epoch(epoch)
        changed += [not torch.equal(part[i][0], upright[i][0]) for i in range(len(part))]
    share = sum(changed) / len(changed)
    assert len(changed) >= 80 and abs(share - 0.4) < 4 * (0.4 * 0.6 / len(changed)) ** 0.5
    whole = load(shapes=SHAPES, train_rotation="any").train
    assert not any(torch.equal(whole[i][0], upright[i][0]) for i in range(len(whole)))
