"""Tasks of the Medical Segmentation Decathlon."""

import json

import nibabel
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from data.scan_files import affine, blobs, numbers, write_decathlon, write_nifti
from steerformer.data import DataError, DecathlonConfig, describe, load


def config(root, **settings):
    return DecathlonConfig(root=root, **{"normalize": "none", "validation": 1, "test": 2} | settings)


@pytest.mark.parametrize("modalities", [1, 3])
def test_task_is_read_as_listed(tmp_path, modalities):
    write_decathlon(tmp_path, modalities=modalities)
    names = ", ".join(f"M{i}" for i in range(modalities))
    assert describe(config(tmp_path)) == f"6 volumes of Blobs; modalities: {names}; classes: background, rim, core"
    splits = load(config(tmp_path))
    assert splits.classes == ("background", "rim", "core")
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [3, 1, 2]
    for index, name in enumerate(splits.test.names):
        number = int(name.removeprefix("case_"))
        x, labels = splits.test[index]
        height, expected = blobs(tuple(n + number % 2 for n in (9, 10, 8)), seed=number)
        assert_close(x, torch.stack([torch.from_numpy(height) * (2 + i) for i in range(modalities)]))
        assert torch.equal(labels, torch.from_numpy(expected).long())
    assert splits.train[0][0].shape[0] == modalities


def test_task_may_be_one_folder_deeper(tmp_path):
    write_decathlon(tmp_path / "Task99_Blobs")
    assert describe(config(tmp_path)).startswith("6 volumes")
    write_decathlon(tmp_path / "Task98_Blobs")
    with pytest.raises(DataError, match="found several: Task98_Blobs, Task99_Blobs"):
        load(config(tmp_path))


def test_volumes_and_labels_are_reoriented_to_ras(tmp_path):
    write_decathlon(tmp_path, count=4)
    plain = load(config(tmp_path, validation=0, test=3)).test
    expected = {name: plain[index] for index, name in enumerate(plain.names)}
    for folder in ("imagesTr", "labelsTr"):
        for path in (tmp_path / folder).iterdir():
            image = nibabel.load(path)
            array = np.asarray(image.dataobj)[::-1].transpose(2, 0, 1)
            matrix = image.affine @ np.array([[0, -1.0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
            matrix[:3, 3] += image.affine[:3, 0] * (image.shape[0] - 1)
            write_nifti(path, np.ascontiguousarray(array), matrix)
    reoriented = load(config(tmp_path, validation=0, test=3)).test
    for index, name in enumerate(reoriented.names):
        assert torch.equal(reoriented[index][0], expected[name][0])
        assert torch.equal(reoriented[index][1], expected[name][1])


def test_nonzero_voxels_are_normalized_per_modality(tmp_path):
    x, _ = load(config(write_decathlon(tmp_path, count=4, modalities=2), normalize="nonzero", crop=0)).test[0]
    for channel in x:
        assert channel[channel != 0].std(correction=0) == pytest.approx(1, abs=0.01)
    assert x.shape[1] < 10


def image(root, number=2):
    return root / "imagesTr" / f"case_{number:03d}.nii.gz"


def label(root, number=2):
    return root / "labelsTr" / f"case_{number:03d}.nii.gz"


def rewrite(path, change):
    write_nifti(path, change(np.asarray(nibabel.load(path).dataobj)))


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def move(path):
    matrix = affine()
    matrix[2, 3] += 4
    write_nifti(path, np.asarray(nibabel.load(path).dataobj), matrix)


SHAPE = r"\(9, 10, 8\)"
NAME = r"Tr/case_002\.nii\.gz"


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda root: truncate(image(root)), f"images{NAME} cannot be read as NIfTI: it is truncated"),
        (lambda root: truncate(label(root)), f"labels{NAME} cannot be read as NIfTI: it is truncated"),
        (lambda root: rewrite(image(root), lambda a: a * np.nan), f"images{NAME} holds NaN or infinity"),
        (lambda root: rewrite(label(root), lambda a: a * np.float32(np.nan)), f"labels{NAME} holds NaN or infinity"),
        (lambda root: rewrite(label(root), lambda a: a * 0.5), f"labels{NAME} holds 0.5, but labels are integers"),
        (lambda root: rewrite(label(root), lambda a: a * 4), rf"labels{NAME} holds labels 0, 4, 8, but .*\(0-2\)"),
        (lambda root: rewrite(label(root), lambda a: -a.astype(np.int16)), "holds labels -2, -1, 0, but"),
        (lambda root: rewrite(label(root), lambda a: a[1:]), rf"labels{NAME} has shape \(8, 10, 8\), but .*{SHAPE}"),
        (lambda root: rewrite(label(root), lambda a: a[..., 0]), rf"labels{NAME} has shape \(9, 10\), expected labels"),
        (lambda root: rewrite(image(root), lambda a: a[..., :1]), f"images{NAME} is a single slice"),
        (lambda root: write_nifti(image(root), numbers((9, 10, 8, 2))), "has 2 modalities, but dataset.json lists 1"),
        (lambda root: move(label(root)), rf"labels{NAME} lies 4\.0 mm away from .*images{NAME}"),
        (lambda root: label(root).unlink(), f"dataset.json lists files that do not exist: .*labels{NAME}"),
    ],
)
def test_invalid_volumes_are_named(tmp_path, damage, message):
    damage(write_decathlon(tmp_path, count=4))
    with pytest.raises(DataError, match=message) as found:
        load(config(tmp_path))
    assert "\n" not in str(found.value)


def test_missing_modality_is_named(tmp_path):
    write_decathlon(tmp_path, modalities=4)
    write_nifti(image(tmp_path), numbers((9, 10, 8, 3)))
    with pytest.raises(
        DataError, match=r"case_002\.nii\.gz has 3 modalities, but dataset.json lists 4: M0, M1, M2, M3"
    ):
        load(config(tmp_path))


def test_labels_may_be_floating_point(tmp_path):
    write_decathlon(tmp_path)
    for number in range(6):
        rewrite(label(tmp_path, number), lambda a: a.astype(np.float64)[..., None])
    assert load(config(tmp_path)).test[0][1].unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"modality": None}, "should have 'modality' with the names of 0, 1, 2 and so on, got None"),
        ({"labels": {"0": "background", "2": "x"}}, "should have 'labels' with the names of 0, 1, 2"),
        ({"labels": {"0": "background"}}, "lists 1 label, expected the background and at least one more"),
        ({"labels": {"0": "background", "1": "x", "2": "x"}}, "gives several labels the name 'x'"),
        ({"labels": {"0": "0", "1": "background"}}, "gives several labels the name 'background'"),
        ({"training": []}, "lists no volumes under 'training'"),
        ({"training": 5}, "lists no volumes under 'training'"),
        ({"training": None}, "lists no volumes under 'training'"),
        ({"training": ["a.nii"]}, "should list an image and a label for each case"),
    ],
)
def test_invalid_listings_are_named(tmp_path, changes, message):
    write_decathlon(tmp_path, count=2, **changes)
    with pytest.raises(DataError, match=rf"dataset\.json {message}"):
        load(config(tmp_path))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="decathlon needs a root"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere; get a task: http://medicaldecathlon\.com"):
        load(config(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"should hold dataset\.json, or one folder that does, found none"):
        load(config(tmp_path))
    write_decathlon(tmp_path)
    with pytest.raises(DataError, match="lists 1 modalities, got channels=4"):
        load(config(tmp_path, channels=4))
    values = json.loads((tmp_path / "dataset.json").read_text())
    values["training"].append(values["training"][0])
    (tmp_path / "dataset.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="lists case_000 more than once"):
        load(config(tmp_path))
    for text, message in (("{", "is not valid JSON"), ("[]", "should hold a mapping, got list")):
        (tmp_path / "dataset.json").write_text(text)
        with pytest.raises(DataError, match=message):
            load(config(tmp_path))
