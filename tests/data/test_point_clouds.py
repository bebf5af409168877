"""ModelNet10 from every source: meshes, HDF5 files and .npz files, and errors that name the file."""

import json

import numpy as np
import pytest
from torch.testing import assert_close

from data.makers import clouds, write_clouds, write_meshes
from steerformer.data import DataError, ModelNet10Config, load, meshes
from steerformer.data.point_clouds import CLASSES


def config(root, **options):
    return ModelNet10Config(root=root, **{"size": 8} | options)


def samples(part):
    return [part[index] for index in range(len(part))]


def write_h5(root, *, named):
    h5py = pytest.importorskip("h5py")
    root.mkdir(parents=True)
    written = {}
    for split, seeds in (("train", (1, 2)), ("test", (3,))):
        for number, seed in enumerate(seeds):
            points, labels = clouds(10, seed=seed)
            numbers = 9 - labels if named else labels  # another order of classes, which the names correct
            with h5py.File(root / f"{split}{number}.h5", "w") as file:
                file["data"], file["label"] = points, numbers[:, None]
            if named:
                names = [CLASSES[label] for label in labels]
                (root / f"{split}{number}_id2name.json").write_text(json.dumps(names))
            written.setdefault(split, []).append((points, labels))
    return {
        split: tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True)) for split, parts in written.items()
    }


@pytest.mark.parametrize("named", [True, False])
def test_hdf5_and_npz_agree(tmp_path, named):
    written = write_h5(tmp_path / "h5" / "modelnet10_hdf5_2048", named=named)
    arrays = {f"{s}_{key}": a for s, pair in written.items() for key, a in zip(("points", "labels"), pair, strict=True)}
    path = write_clouds(tmp_path / "clouds.npz", **arrays)
    h5, npz = load(config(tmp_path / "h5")), load(config(path))
    for part in ("train", "test"):
        assert_close(samples(getattr(h5, part)), samples(getattr(npz, part)), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [str, bytes])
def test_npz_labels_follow_its_class_names(tmp_path, kind):
    names = np.array(CLASSES[::-1]).astype("S" if kind is bytes else "U")
    labels = clouds(20)[1]
    path = write_clouds(tmp_path / "clouds.npz", classes=names)
    assert load(config(path)).train.labels.tolist() == (9 - labels.astype(int)).tolist()
    write_clouds(path, classes=np.array([*CLASSES[:9], "throne"]))
    with pytest.raises(DataError, match=r"clouds\.npz names the class 'throne'"):
        load(config(path))
    write_clouds(path, classes=np.array(CLASSES[:3]))
    with pytest.raises(DataError, match=r"clouds\.npz: labels should be 0 to 2, got 9"):
        load(config(path))


def test_invalid_hdf5_files_are_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    root = tmp_path / "h5"
    write_h5(root, named=True)
    names = root / "train0_id2name.json"
    names.write_text('["chair"]')
    with pytest.raises(DataError, match=r"train0_id2name\.json should be a list of 10 class names"):
        load(config(root))
    names.write_text(json.dumps(["plane"] * 10))
    with pytest.raises(DataError, match="names the class 'plane', which ModelNet10 does not have"):
        load(config(root))
    names.write_text("[")
    with pytest.raises(DataError, match="cannot be read as JSON"):
        load(config(root))
    names.unlink()
    with h5py.File(root / "train1.h5", "w") as file:
        file["data"] = clouds(3)[0]
    with pytest.raises(DataError, match=r"train1\.h5 lacks label; it holds data"):
        load(config(root))
    (root / "train1.h5").write_bytes((root / "train0.h5").read_bytes()[:700])
    with pytest.raises(DataError, match=r"train1\.h5 cannot be read as HDF5"):
        load(config(root))
    (root / "train1_id2name.json").unlink()
    with h5py.File(root / "train1.h5", "w") as file:
        file["data"], file["label"] = clouds(3, points=32)[0], np.arange(3)
    with pytest.raises(DataError, match="the same number of points"):
        load(config(root))
    (root / "test0.h5").unlink()
    with pytest.raises(DataError, match=r"there is no test0\.h5 in"):
        load(config(root))


def test_meshes_become_point_clouds(tmp_path, monkeypatch):
    monkeypatch.setattr(meshes, "POINTS", 300)
    splits = load(config(write_meshes(tmp_path)))
    assert splits.train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert splits.test.labels.tolist() == list(range(10))
    assert splits.train.points.shape == (20, 300, 3)
    corners = splits.train.points[0].float().abs().amax(dim=0)  # a centered box
    assert float(corners.norm()) == pytest.approx(1, abs=0.08)


def test_interrupted_sampling_resumes(tmp_path, monkeypatch, cache_folder):
    root, sampled = write_meshes(tmp_path), []
    monkeypatch.setattr("steerformer.data.point_clouds._CHUNK", 10)
    monkeypatch.setattr(meshes, "POINTS", 50)
    read = meshes.read_off

    def interrupted(path):
        if len(sampled) == 25:
            raise KeyboardInterrupt
        sampled.append(path)
        return read(path)

    monkeypatch.setattr(meshes, "read_off", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(config(root))
    assert len(list(cache_folder.rglob("*.safetensors"))) == 2
    again = []
    monkeypatch.setattr(meshes, "read_off", lambda path: again.append(path) or read(path))
    resumed = load(config(root))
    assert len(again) == 10 and not list(cache_folder.glob("*.parts"))
    monkeypatch.setenv("STEERFORMER_CACHE", str(tmp_path / "fresh"))
    assert_close(samples(resumed.train), samples(load(config(root)).train), rtol=0, atol=0)


def test_incomplete_archive_is_named(tmp_path):
    root = write_meshes(tmp_path)
    (root / "ModelNet10" / "sofa" / "test" / "sofa_0000.off").unlink()
    with pytest.raises(DataError, match=r"there are no \.off files in .*sofa/test"):
        load(config(root))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"test_points": None}, "lacks test_points"),
        ({"train_labels": np.arange(7)}, "20 clouds need as many integer labels"),
        ({"train_labels": np.arange(20)}, "labels should be 0 to 9, got 19"),
        ({"test_points": np.zeros((10, 5, 2), np.float32)}, r"shape \(objects, points, 3\)"),
        ({"train_points": np.where(np.arange(20)[:, None, None] == 3, np.nan, clouds(20)[0])}, "cloud 3 holds NaN"),
    ],
)
def test_invalid_point_clouds_are_named(tmp_path, changes, message):
    path = write_clouds(tmp_path / "clouds.npz", **changes)
    with pytest.raises(DataError, match=rf"clouds\.npz.*{message}"):
        load(config(path))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"modelnet10 needs a root.*princeton"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere.*PointCloudDatasets"):
        load(config(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="there is no ModelNet10 in"):
        load(config(tmp_path))
    (tmp_path / "file.off").write_text("")
    with pytest.raises(DataError, match=r"file\.off is not an \.npz file"):
        load(config(tmp_path / "file.off"))
    for name in ("a", "b"):
        write_clouds(tmp_path / "two" / f"{name}.npz")
    with pytest.raises(DataError, match=r"several \.npz files"):
        load(config(tmp_path / "two"))
