"""PH2 from the archive and from an .npz file."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from data.scan_files import photograph, write_ph2, write_ph2_npz
from steerformer.data import DataError, PH2Config, describe, load

FEW = {"train": 2, "validation": 2, "test": 2}


def test_archive_is_read(tmp_path):
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


def test_archive_is_found_in_all_parent_folders(tmp_path):
    write_ph2(tmp_path / "PH2 Dataset")
    for root in (tmp_path, tmp_path / "PH2 Dataset", tmp_path / "PH2 Dataset" / "PH2 Dataset images"):
        assert describe(PH2Config(root=root)).startswith("6 photographs")


@pytest.mark.parametrize("packed", [True, False])
def test_npz_is_read(tmp_path, packed):
    images, masks = write_ph2_npz(tmp_path / "ph2.npz")
    if not packed:
        write_ph2_npz(tmp_path / "ph2.npz", masks=255 * masks, ids=None)
    for root in (tmp_path, tmp_path / "ph2.npz"):
        part = load(PH2Config(root=root, size=None, normalize="none", **FEW)).test
        for name, (x, labels) in zip(part.names, [part[i] for i in range(len(part))], strict=True):
            number = int(name.removeprefix("IMD"))
            assert_close(x, torch.from_numpy(images[number]).movedim(2, 0) / 255)
            assert torch.equal(labels, torch.from_numpy(masks[number]).long())


def test_photographs_are_resampled_and_normalized(tmp_path):
    config = PH2Config(root=write_ph2(tmp_path), size=(6, 8), **FEW)
    splits = load(config)
    for part in (splits.train, splits.test):
        x, labels = part[0]
        assert x.shape == (3, 6, 8) and labels.shape == (6, 8)
        assert_close(x.mean(dim=(1, 2)), torch.zeros(3), rtol=0, atol=2e-3)
        assert_close(x.std(dim=(1, 2), correction=0), torch.ones(3), rtol=0, atol=2e-3)
    assert load(PH2Config(root=tmp_path, size=(6, 8), channels=1, **FEW)).train[0][0].shape == (1, 6, 8)
    default = PH2Config()
    assert default.size == (144, 192) and (default.train, default.validation, default.test) == (100, 50, 50)


def remove_mask(root):
    next(root.rglob("IMD003_lesion.bmp")).unlink()


def truncate_image(root):
    path = next(root.rglob("IMD003.bmp"))
    path.write_bytes(path.read_bytes()[:300])


def small_mask(root):
    Image.new("1", (8, 8)).save(next(root.rglob("IMD003_lesion.bmp")))


def gray_mask(root):
    Image.fromarray(np.full((13, 16), 7, np.uint8)).save(next(root.rglob("IMD003_lesion.bmp")))


def color_mask(root):
    Image.fromarray(photograph(0, (13, 16))[0]).save(next(root.rglob("IMD003_lesion.bmp")))


@pytest.mark.parametrize(
    "damage, message",
    [
        (remove_mask, r"there is no file .*IMD003_lesion\.bmp; unpack"),
        (truncate_image, r"IMD003\.bmp cannot be read as an image"),
        (small_mask, r"IMD003_lesion\.bmp has shape \(8, 8\), but .*IMD003\.bmp has \(13, 16\)"),
        (gray_mask, r"IMD003_lesion\.bmp holds labels 7, but there are 2 classes \(0-1\)"),
        (color_mask, r"IMD003_lesion\.bmp is in color"),
    ],
)
def test_invalid_photographs_are_named(tmp_path, damage, message):
    damage(write_ph2(tmp_path))
    with pytest.raises(DataError, match=message):
        load(PH2Config(root=tmp_path, **FEW))


def masks_with(value, kind=np.uint8):
    masks = np.zeros((6, 12, 20), kind)
    masks[4, 5] = value
    return masks


def test_lesion_may_fill_the_image(tmp_path):
    write_ph2_npz(tmp_path / "ph2.npz", masks=np.full((6, 12, 20), 255, np.uint8))
    assert load(PH2Config(root=tmp_path, size=None, **FEW)).test[0][1].eq(1).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"masks": None}, r"ph2\.npz lacks masks"),
        ({"images": np.zeros((6, 12, 20), np.uint8)}, r"ph2\.npz has images of shape \(6, 12, 20\)"),
        ({"masks": np.zeros((6, 12, 4), np.uint8)}, r"ph2\.npz has masks of shape \(6, 12, 4\)"),
        ({"masks": masks_with(3)}, r"ph2\.npz \(IMD004\) holds labels 0, 3, but there are 2 classes \(0-1\)"),
        ({"masks": masks_with(-1, np.int16)}, r"ph2\.npz \(IMD004\) holds labels -1, 0, but there are 2"),
        ({"masks": masks_with(np.nan, float)}, r"ph2\.npz has masks of float64, expected integers"),
        ({"masks": masks_with("x", "U1")}, r"ph2\.npz has masks of <U1, expected integers"),
        ({"ids": ["a"] * 6}, r"ph2\.npz has 1 different ids for 6 images"),
    ],
)
def test_invalid_arrays_are_named(tmp_path, changes, message):
    write_ph2_npz(tmp_path / "ph2.npz", **changes)
    with pytest.raises(DataError, match=message):
        load(PH2Config(root=tmp_path, **FEW))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="ph2 needs a root"):
        load(PH2Config())
    with pytest.raises(DataError, match=r"there is no folder .*nowhere; get PH2: https://"):
        load(PH2Config(root=tmp_path / "nowhere"))
    with pytest.raises(DataError, match="does not hold PH2"):
        load(PH2Config(root=tmp_path))
    write_ph2(tmp_path)
    with pytest.raises(DataError, match="has 6 cases, too few for train=100, validation=50 and test=50; lower them"):
        load(PH2Config(root=tmp_path))
