"""PH2 as its archive is laid out, and as arrays."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from data.scan_files import photograph, write_ph2, write_ph2_npz
from steerformer.data import DataError, PH2Config, describe, load

FEW = {"train": 2, "validation": 2, "test": 2}


def test_the_archive_is_read(tmp_path):
    root = write_ph2(tmp_path / "PH2")
    config = PH2Config(root=root, size=None, normalize="none", **FEW)
    assert describe(config).startswith("6 photographs, the first IMD000, in ")
    splits = load(config)
    assert splits.classes == ("background", "lesion")
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [2, 2, 2]
    for part in (splits.validation, splits.test):
        for name, (x, labels) in zip(part.names, part, strict=False):
            number = int(name.removeprefix("IMD"))
            pixels, mask = photograph(number, (12 + number % 2, 16))
            assert_close(x, torch.from_numpy(pixels).movedim(2, 0) / 255)
            assert torch.equal(labels, torch.from_numpy(mask).long())


def test_the_archive_is_found_where_it_is_unpacked(tmp_path):
    write_ph2(tmp_path / "PH2 Dataset")
    for root in (tmp_path, tmp_path / "PH2 Dataset", tmp_path / "PH2 Dataset" / "PH2 Dataset images"):
        assert describe(PH2Config(root=root)).startswith("6 photographs")


@pytest.mark.parametrize("packed", [True, False])
def test_arrays_are_read(tmp_path, packed):
    images, masks = write_ph2_npz(tmp_path / "ph2.npz")
    if not packed:
        write_ph2_npz(tmp_path / "ph2.npz", masks=255 * masks, ids=None)
    for root in (tmp_path, tmp_path / "ph2.npz"):
        part = load(PH2Config(root=root, size=None, normalize="none", **FEW)).test
        for name, (x, labels) in zip(part.names, [part[i] for i in range(len(part))], strict=True):
            number = int(name.removeprefix("IMD"))
            assert_close(x, torch.from_numpy(images[number]).movedim(2, 0) / 255)
            assert torch.equal(labels, torch.from_numpy(masks[number]).long())


def test_all_have_one_size_unless_asked_otherwise(tmp_path):
    config = PH2Config(root=write_ph2(tmp_path), size=(6, 8), **FEW)
    splits = load(config)
    for part in (splits.train, splits.test):
        x, labels = part[0]
        assert x.shape == (3, 6, 8) and labels.shape == (6, 8)
        assert_close(x.mean(dim=(1, 2)), torch.zeros(3), rtol=0, atol=2e-3)
        assert_close(x.std(dim=(1, 2), correction=0), torch.ones(3), rtol=0, atol=2e-3)
    assert load(PH2Config(root=tmp_path, size=(6, 8), channels=1, **FEW)).train[0][0].shape == (1, 6, 8)
    assert PH2Config().size == (144, 192) and (PH2Config().train, PH2Config().validation, PH2Config().test) == (
        100,
        50,
        50,
    )


def lose_mask(root):
    next(root.rglob("IMD003_lesion.bmp")).unlink()


def cut_image(root):
    path = next(root.rglob("IMD003.bmp"))
    path.write_bytes(path.read_bytes()[:300])


def small_mask(root):
    Image.new("1", (8, 8)).save(next(root.rglob("IMD003_lesion.bmp")))


def gray_mask(root):
    Image.fromarray(np.full((13, 16), 7, np.uint8)).save(next(root.rglob("IMD003_lesion.bmp")))


def color_mask(root):
    Image.fromarray(photograph(0, (13, 16))[0]).save(next(root.rglob("IMD003_lesion.bmp")))


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lose_mask, r"there is no file .*IMD003_lesion\.bmp; unpack"),
        (cut_image, r"IMD003\.bmp cannot be read as an image"),
        (small_mask, r"IMD003_lesion\.bmp has shape \(8, 8\), but .*IMD003\.bmp has \(13, 16\)"),
        (gray_mask, r"IMD003_lesion\.bmp holds the labels 7, but there are 2 classes, 0 to 1"),
        (color_mask, r"IMD003_lesion\.bmp is in color"),
    ],
)
def test_bad_photographs_are_named(tmp_path, spoil, message):
    spoil(write_ph2(tmp_path))
    with pytest.raises(DataError, match=message):
        load(PH2Config(root=tmp_path, **FEW))


def odd_masks(value, kind=np.uint8):
    masks = np.zeros((6, 12, 20), kind)
    masks[4, 5] = value
    return masks


def test_a_lesion_may_fill_the_frame(tmp_path):
    write_ph2_npz(tmp_path / "ph2.npz", masks=np.full((6, 12, 20), 255, np.uint8))
    assert load(PH2Config(root=tmp_path, size=None, **FEW)).test[0][1].eq(1).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"masks": None}, r"ph2\.npz lacks masks"),
        ({"images": np.zeros((6, 12, 20), np.uint8)}, r"ph2\.npz has images of shape \(6, 12, 20\)"),
        ({"masks": np.zeros((6, 12, 4), np.uint8)}, r"ph2\.npz has masks of shape \(6, 12, 4\)"),
        ({"masks": odd_masks(3)}, r"ph2\.npz \(IMD004\) holds the labels 0, 3, but there are 2 classes, 0 to 1"),
        ({"masks": odd_masks(-1, np.int16)}, r"ph2\.npz \(IMD004\) holds the labels -1, 0, but there are 2"),
        ({"masks": odd_masks(np.nan, float)}, r"ph2\.npz has masks of float64, expected whole numbers"),
        ({"masks": odd_masks("x", "U1")}, r"ph2\.npz has masks of <U1, expected whole numbers"),
        ({"ids": ["a"] * 6}, r"ph2\.npz has 1 different ids for 6 images"),
    ],
)
def test_bad_arrays_are_named(tmp_path, changes, message):
    write_ph2_npz(tmp_path / "ph2.npz", **changes)
    with pytest.raises(DataError, match=message):
        load(PH2Config(root=tmp_path, **FEW))


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(DataError, match="ph2 needs a root"):
        load(PH2Config())
    with pytest.raises(DataError, match=r"there is no folder .*nowhere; get PH2: https://"):
        load(PH2Config(root=tmp_path / "nowhere"))
    with pytest.raises(DataError, match="holds no PH2"):
        load(PH2Config(root=tmp_path))
    write_ph2(tmp_path)
    with pytest.raises(DataError, match="has 6 cases, got train=100, validation=50 and test=50"):
        load(PH2Config(root=tmp_path))
