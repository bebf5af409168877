"""Folders of images and masks."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from data.scan_files import blobs, photograph, write_nifti, write_pairs
from steerformer.config import ConfigError, validate
from steerformer.data import DataConfig, DataError, PairsConfig, describe, load


def config(root, **settings):
    return PairsConfig(root=root, **{"normalize": "none", "validation": 1, "test": 2} | settings)


@pytest.mark.parametrize("ending", ["", "_mask", "_segmentation"])
def test_images_and_masks_are_matched_by_name(tmp_path, ending):
    write_pairs(tmp_path, ending=ending)
    (tmp_path / "images" / "notes.txt").write_text("other files are ignored")
    (tmp_path / "masks" / ".hidden.png").write_text("and so are hidden ones")
    assert describe(config(tmp_path)).startswith("5 images with labels, the first scan0")
    splits = load(config(tmp_path))
    assert splits.classes == ("background", "foreground")
    for index, name in enumerate(splits.test.names):
        pixels, mask = photograph(int(name.removeprefix("scan")))
        x, labels = splits.test[index]
        assert_close(x[0], torch.from_numpy(pixels[..., 0]) / 255)
        assert torch.equal(labels, torch.from_numpy(mask).long())


@pytest.mark.parametrize("kind", ["nii", "nii.gz", "npy"])
@pytest.mark.parametrize("folders", [("images", "labels"), ("imagesTr", "labelsTr")])
def test_volumes_and_labels_are_read(tmp_path, kind, folders):
    write_pairs(tmp_path, kind=kind, classes=3, folders=folders)
    splits = load(config(tmp_path, classes=("background", "rim", "core")))
    assert splits.classes == ("background", "rim", "core")
    x, labels = splits.test[0]
    height, expected = blobs((8, 9, 10), seed=int(splits.test.names[0].removeprefix("scan")), classes=3)
    assert_close(x[0], torch.from_numpy(height))
    assert torch.equal(labels, torch.from_numpy(expected).long())
    assert load(config(tmp_path, classes=3)).classes == ("background", "1", "2")


def test_modalities_in_separate_files_are_channels(tmp_path):
    write_pairs(tmp_path, kind="nii.gz", folders=("imagesTr", "labelsTr"))
    for path in list((tmp_path / "imagesTr").iterdir()):
        name = path.name.removesuffix(".nii.gz")
        path.rename(path.with_name(f"{name}_0000.nii.gz"))
        write_nifti(path.with_name(f"{name}_0001.nii.gz"), 5 * blobs((8, 9, 10), seed=int(name[-1]))[0])
    splits = load(config(tmp_path))
    assert splits.train.names == tuple(f"scan{n}" for n in splits.train.numbers.tolist())
    x, _ = splits.test[0]
    assert x.shape == (2, 8, 9, 10)
    assert_close(5 * x[0], x[1])
    next((tmp_path / "imagesTr").glob("scan3_0001*")).unlink()
    with pytest.raises(DataError, match=r"scan3_0000\.nii\.gz has modalities 0000, but lacks 0001: every case needs"):
        load(config(tmp_path))


def test_modalities_must_start_at_0(tmp_path):
    write_pairs(tmp_path, kind="npy")
    for path in list((tmp_path / "images").iterdir()):
        path.rename(path.with_stem(f"{path.stem}_0001"))
    with pytest.raises(DataError, match=r"scan0_0001\.npy has modalities 0001, but lacks 0000: .* from 0000\.$"):
        load(config(tmp_path))


def test_only_the_case_without_a_mask_is_named(tmp_path):
    write_pairs(tmp_path, kind="npy")
    for path in list((tmp_path / "images").iterdir()):
        path.rename(path.with_stem(f"{path.stem}_0000"))
    (tmp_path / "masks" / "scan3.npy").unlink()
    with pytest.raises(DataError, match=r"names do not match: no mask in .*masks for scan3\.$"):
        load(config(tmp_path))


@pytest.mark.parametrize("kind", ["numbers", "palette", "bits", "color"])
def test_all_mask_encodings_are_read(tmp_path, kind):
    write_pairs(tmp_path)
    for number in range(5):
        mask = photograph(number)[1]
        image = Image.fromarray({"bits": mask > 0, "color": 255 * np.stack([mask] * 3, axis=-1)}.get(kind, mask))
        if kind == "palette":
            image.putpalette([0, 0, 0, 200, 30, 30])
        image.save(tmp_path / "masks" / f"scan{number}.png")
    splits = load(config(tmp_path))
    expected = photograph(int(splits.test.names[0].removeprefix("scan")))[1]
    assert torch.equal(splits.test[0][1], torch.from_numpy(expected).long())


def test_unmatched_names_are_listed(tmp_path):
    write_pairs(tmp_path, count=9)
    for number in (1, 4):
        (tmp_path / "images" / f"scan{number}.png").unlink()
    for number in (0, 2, 3, 5, 6, 7):
        (tmp_path / "masks" / f"scan{number}.png").unlink()
    with pytest.raises(
        DataError, match=r"no mask in .*masks for scan0, scan2, scan3, scan5, scan6 and 1 more; no image .*scan1, scan4"
    ):
        load(config(tmp_path))


def test_two_files_with_the_same_name_are_rejected(tmp_path):
    write_pairs(tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "images" / "scan1.jpg")
    with pytest.raises(DataError, match=r"scan1\.jpg and .*scan1\.png have the same name"):
        load(config(tmp_path))


def test_gray_and_color_are_mixed_only_with_channels(tmp_path):
    write_pairs(tmp_path)
    Image.fromarray(photograph(3)[0]).save(tmp_path / "images" / "scan3.png")
    with pytest.raises(DataError, match=r"scan0\.png has 1 channels, but .*scan3\.png has 3; set channels"):
        load(config(tmp_path))
    assert load(config(tmp_path, channels=3)).train[0][0].shape[0] == 3


def test_mask_of_another_kind_is_rejected(tmp_path):
    write_pairs(tmp_path)
    (tmp_path / "masks" / "scan2.png").unlink()
    np.save(tmp_path / "masks" / "scan2.npy", np.zeros((4, 4, 4)))
    with pytest.raises(DataError, match=r"scan2\.npy cannot hold the labels of .*scan2\.png: one is an image"):
        load(config(tmp_path))


def test_missing_folders_are_named(tmp_path):
    with pytest.raises(DataError, match="pairs needs a root"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        load(config(tmp_path / "nowhere"))
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match=r"should be a folder with images .* and masks .*, found images"):
        load(config(tmp_path))
    (tmp_path / "masks").mkdir()
    with pytest.raises(DataError, match="images is empty: no image"):
        load(config(tmp_path))


@pytest.mark.parametrize(
    "classes, message",
    [
        (1, "classes"),
        (["lesion", "x"], "the first class is background, got 'lesion'"),
        (["background"], "classes"),
        (["background", "x", "y", "x"], "class names are unique, got 'x' twice"),
        (["background", "background"], "class names are unique, got 'background' twice"),
    ],
)
def test_class_names_are_unique_and_start_with_background(classes, message):
    with pytest.raises(ConfigError, match=message):
        validate(DataConfig, {"name": "pairs", "classes": classes}, where="data")
