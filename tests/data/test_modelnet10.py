"""Furniture from every source, turned as asked, the same whatever the order."""

import json
import math
from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from data.makers import clouds, write_clouds, write_meshes
from steerformer import SO3, FieldType
from steerformer.data import DataError, ModelNet10Config, load, meshes
from steerformer.data.clouds import CLASSES
from steerformer.data.modelnet10 import TILT, draw_rotation, jitter
from steerformer.data.voxels import voxelize


@pytest.fixture
def root(tmp_path):
    write_clouds(tmp_path / "npz" / "clouds.npz")
    return tmp_path / "npz"


def config(root, **settings):
    return ModelNet10Config(root=root, **{"size": 8} | settings)


def samples(part):
    return [part[index] for index in range(len(part))]


def test_samples_have_the_form_that_training_expects(root):
    splits = load(config(root, validation=4))
    x, label = splits.train[0]
    assert x.shape == (1, 8, 8, 8) and x.dtype == torch.float32 and label == int(splits.train.labels[0])
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [16, 4, 10]
    assert not set(splits.train.numbers.tolist()) & set(splits.validation.numbers.tolist())
    assert splits.classes == CLASSES


@pytest.mark.parametrize("occupancy", ["binary", "gaussian"])
def test_rotations_of_points_and_of_voxels_are_by_the_same_matrix(root, occupancy):
    upright = load(config(root, occupancy=occupancy, fill=0.6, size=12)).test
    turned = load(config(root, occupancy=occupancy, fill=0.6, size=12, test_rotation="so3", rotate="voxels")).test
    for index in range(3):
        R = SO3.random_rotation(turned.generator(index, fixed=True))
        expected = FieldType.image(SO3, 1).rotate(upright[index][0][None], R, mode="nearest")
        assert_close(turned[index][0], expected[0])
    by_points = load(config(root, occupancy="gaussian", fill=0.6, size=12, test_rotation="so3")).test
    by_voxels = load(config(root, occupancy="gaussian", fill=0.6, size=12, test_rotation="so3", rotate="voxels")).test
    upright = load(config(root, occupancy="gaussian", fill=0.6, size=12)).test
    apart = [(by_points[i][0] - by_voxels[i][0]).norm() / (by_points[i][0] - upright[i][0]).norm() for i in range(10)]
    assert max(apart) < 0.8  # two ways to do the same, unlike doing nothing


def test_turning_about_the_vertical_keeps_heights(root):
    """Counted along the last axis, which is z."""
    upright, turned = (load(config(root, size=32, test_rotation=turn)).test for turn in ("none", "z"))
    wild = load(config(root, size=32, test_rotation="so3")).test

    def levels(part, index):
        return part[index][0][0].sum(dim=(0, 1)) > 0

    assert all((levels(upright, i) == levels(turned, i)).all() for i in range(10))
    assert not all((levels(upright, i) == levels(wild, i)).all() for i in range(10))
    assert all((upright[i][0] != turned[i][0]).any() for i in range(10))


def test_z_rotations_keep_the_z_coordinate():
    R = draw_rotation("z", torch.Generator().manual_seed(1))
    points = torch.randn(5, 3, dtype=torch.float64)
    assert_close((points @ R.T)[:, 2], points[:, 2])
    assert (points @ R.T - points)[:, :2].abs().max() > 0.1
    assert_close(points @ draw_rotation("none", torch.Generator()).T, points)


def test_a_tilted_grid_holds_the_same_object_turned_by_one_rotation(root):
    """From points, by hand, also where the object is turned about its own vertical."""
    for rotation in ("none", "z", "so3"):
        tilted = load(config(root, size=12, grid="tilted", occupancy="gaussian", test_rotation=rotation)).test
        for index in (0, 7):
            R = draw_rotation(rotation, tilted.generator(index, fixed=True))
            points = tilted.points[index].double() @ R.T @ TILT.T
            assert_close(tilted[index][0], voxelize(points.float()[None], 12, fill=0.95, width=0.7)[0])


def test_clouds_to_train_on_are_shaken_first_and_tilted_then(root):
    train = load(config(root, size=12, grid="tilted", occupancy="gaussian", augment="jitter")).train
    points = jitter(train.points[3].float(), train.generator(3)) @ TILT.float().T
    assert_close(train[3][0], voxelize(points[None], 12, fill=0.95, width=0.7)[0])


@pytest.mark.parametrize("grid", ["aligned", "tilted"])
def test_what_is_not_turned_is_the_same_whatever_would_be_turned(root, grid):
    points, voxels = (load(config(root, grid=grid, rotate=way)).test for way in ("points", "voxels"))
    assert all(torch.equal(points[i][0], voxels[i][0]) for i in range(10))


def test_on_a_tilted_grid_voxels_turn_about_the_objects_vertical(root):
    settings = {"size": 24, "grid": "tilted", "occupancy": "gaussian", "test_rotation": "z"}
    by_points, by_voxels = (load(config(root, rotate=way, **settings)).test for way in ("points", "voxels"))
    upright = load(config(root, **settings | {"test_rotation": "none"})).test
    apart = [(by_points[i][0] - by_voxels[i][0]).norm() / (by_points[i][0] - upright[i][0]).norm() for i in range(10)]
    assert sorted(apart)[5] < 0.5  # an object that is hardly turned proves nothing


def test_no_axis_of_a_tilted_object_is_near_a_line_of_voxels():
    lines = torch.tensor([line for line in product((-1.0, 0.0, 1.0), repeat=3) if any(line)], dtype=torch.float64)
    cosines = (lines / lines.norm(dim=1, keepdim=True)) @ TILT
    assert cosines.max() < math.cos(math.radians(26))


@pytest.mark.parametrize("settings", [{"train_rotation": "so3"}, {"train_rotation": "z"}, {"augment": "jitter"}])
def test_what_is_random_depends_on_seed_epoch_and_sample_alone(root, settings):
    train = load(config(root, **settings)).train
    first = samples(train)
    torch.manual_seed(7)
    assert_close([train[index] for index in reversed(range(20))][::-1], first, rtol=0, atol=0)
    train.set_epoch(1)
    assert all((a != b).any() for (a, _), (b, _) in zip(first, samples(train), strict=True))
    train.set_epoch(0)
    assert_close(samples(train), first, rtol=0, atol=0)
    fewer = load(config(root, validation=7, **settings)).train
    assert_close(fewer[2], first[int(fewer.numbers[2])], rtol=0, atol=0)
    other = load(config(root, seed=1, **settings)).train
    assert any((a != b).any() for (a, _), (b, _) in zip(first, samples(other), strict=True))


def test_test_objects_keep_their_rotation(root):
    splits = load(config(root, train_rotation="so3", test_rotation="so3", augment="jitter", validation=5))
    for part in (splits.validation, splits.test):
        first = samples(part)
        part.set_epoch(4)
        assert_close(samples(part), first, rtol=0, atol=0)


def test_jitter_stays_within_the_sphere():
    points = torch.randn(500, 3)
    points = points / points.norm(dim=1, keepdim=True)
    for seed in range(20):
        moved = jitter(points, torch.Generator().manual_seed(seed))
        assert 0.7 < moved.norm(dim=1).max() < 1.06  # a hundredth of noise, five deviations of it


@pytest.mark.parametrize("up, axis", [("x", 0), ("y", 1), ("z", 2)])
def test_up_becomes_the_last_axis_by_a_rotation(tmp_path, up, axis):
    points, labels = clouds(10)
    points[:, :, axis] *= 5  # as tall as nothing else
    path = write_clouds(tmp_path / f"{up}.npz", train_points=points, train_labels=labels)
    train = load(config(path, up=up)).train
    spread = train.points.float().std(dim=1)
    assert (spread[:, 2] > 2 * spread[:, :2].amax(dim=1)).all()
    plain = load(config(path)).train
    permutation = torch.linalg.lstsq(plain.points[0].float(), train.points[0].float()).solution
    assert float(torch.linalg.det(permutation)) == pytest.approx(1, abs=1e-3)


def write_h5(root, *, named):
    h5py = pytest.importorskip("h5py")
    root.mkdir(parents=True)
    written = {}
    for split, seeds in (("train", (1, 2)), ("test", (3,))):
        for number, seed in enumerate(seeds):
            points, labels = clouds(10, seed=seed)
            stored = 9 - labels if named else labels  # another order of classes, which the names put right
            with h5py.File(root / f"{split}{number}.h5", "w") as file:
                file["data"], file["label"] = points, stored[:, None]
            if named:
                names = [CLASSES[label] for label in labels]
                (root / f"{split}{number}_id2name.json").write_text(json.dumps(names))
            written.setdefault(split, []).append((points, labels))
    return {
        split: tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True)) for split, parts in written.items()
    }


@pytest.mark.parametrize("named", [True, False])
def test_hdf5_clouds_agree_with_an_npz_of_the_same(tmp_path, named):
    written = write_h5(tmp_path / "h5" / "modelnet10_hdf5_2048", named=named)
    arrays = {f"{s}_{key}": a for s, pair in written.items() for key, a in zip(("points", "labels"), pair, strict=True)}
    path = write_clouds(tmp_path / "clouds.npz", **arrays)
    h5, npz = load(config(tmp_path / "h5")), load(config(path))
    for part in ("train", "test"):
        assert_close(samples(getattr(h5, part)), samples(getattr(npz, part)), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [str, bytes])
def test_labels_of_an_npz_go_by_the_names_of_its_classes(tmp_path, kind):
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


def test_bad_hdf5_files_are_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    root = tmp_path / "h5"
    write_h5(root, named=True)
    names = root / "train0_id2name.json"
    names.write_text('["chair"]')
    with pytest.raises(DataError, match=r"train0_id2name\.json should be a list of 10 names"):
        load(config(root))
    names.write_text(json.dumps(["plane"] * 10))
    with pytest.raises(DataError, match="names the class 'plane', which ModelNet10 does not have"):
        load(config(root))
    names.write_text("[")
    with pytest.raises(DataError, match="is no JSON file"):
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
    with pytest.raises(DataError, match="equally many points"):
        load(config(root))
    (root / "test0.h5").unlink()
    with pytest.raises(DataError, match=r"holds no test0\.h5"):
        load(config(root))


def test_meshes_become_clouds(tmp_path, monkeypatch):
    monkeypatch.setattr(meshes, "POINTS", 300)
    splits = load(config(write_meshes(tmp_path)))
    assert splits.train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert splits.test.labels.tolist() == list(range(10))
    assert splits.train.points.shape == (20, 300, 3)
    corners = splits.train.points[0].float().abs().amax(dim=0)  # a box centered on its own middle
    assert float(corners.norm()) == pytest.approx(1, abs=0.08)


def test_interrupted_sampling_goes_on_where_it_was(tmp_path, monkeypatch, cache_folder):
    root, sampled = write_meshes(tmp_path), []
    monkeypatch.setattr("steerformer.data.clouds._CHUNK", 10)
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


def test_an_incomplete_archive_is_named(tmp_path):
    root = write_meshes(tmp_path)
    (root / "ModelNet10" / "sofa" / "test" / "sofa_0000.off").unlink()
    with pytest.raises(DataError, match=r"sofa/test is missing or holds no \.off file"):
        load(config(root))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"test_points": None}, "lacks test_points"),
        ({"train_labels": np.arange(7)}, "20 clouds need as many whole labels"),
        ({"train_labels": np.arange(20)}, "labels should be 0 to 9, got 19"),
        ({"test_points": np.zeros((10, 5, 2), np.float32)}, r"shape \(objects, points, 3\)"),
        ({"train_points": np.where(np.arange(20)[:, None, None] == 3, np.nan, clouds(20)[0])}, "cloud 3 holds NaN"),
    ],
)
def test_bad_clouds_are_named(tmp_path, changes, message):
    path = write_clouds(tmp_path / "clouds.npz", **changes)
    with pytest.raises(DataError, match=rf"clouds\.npz.*{message}"):
        load(config(path))


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(DataError, match=r"modelnet10 needs a root.*princeton"):
        load(config(None))
    with pytest.raises(DataError, match=r"there is no folder .*nowhere.*PointCloudDatasets"):
        load(config(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="holds no ModelNet10"):
        load(config(tmp_path))
    (tmp_path / "file.off").write_text("")
    with pytest.raises(DataError, match="is a file but no"):
        load(config(tmp_path / "file.off"))
    for name in ("a", "b"):
        write_clouds(tmp_path / "two" / f"{name}.npz")
    with pytest.raises(DataError, match=r"several \.npz files"):
        load(config(tmp_path / "two"))
