"""ModelNet10: rotations, tilted grids, augmentation and random numbers."""

import math
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from data.makers import clouds, write_clouds
from steerformer import SO3, FieldType
from steerformer.data import ModelNet10Config, load
from steerformer.data.modelnet10 import TILT, draw_rotation, jitter
from steerformer.data.point_clouds import CLASSES
from steerformer.data.voxelization import voxelize


@pytest.fixture
def root(tmp_path):
    write_clouds(tmp_path / "npz" / "clouds.npz")
    return tmp_path / "npz"


def config(root, **options):
    return ModelNet10Config(root=root, **{"size": 8} | options)


def samples(part):
    return [part[index] for index in range(len(part))]


def test_samples_have_the_expected_shape_and_type(root):
    splits = load(config(root, validation=4))
    x, label = splits.train[0]
    assert x.shape == (1, 8, 8, 8) and x.dtype == torch.float32 and label == int(splits.train.labels[0])
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [16, 4, 10]
    assert not set(splits.train.numbers.tolist()) & set(splits.validation.numbers.tolist())
    assert splits.classes == CLASSES


@pytest.mark.parametrize("occupancy", ["binary", "gaussian"])
def test_points_and_voxels_are_rotated_by_the_same_matrix(root, occupancy):
    upright = load(config(root, occupancy=occupancy, fill=0.6, size=12)).test
    rotated = load(config(root, occupancy=occupancy, fill=0.6, size=12, test_rotation="so3", rotate="voxels")).test
    for index in range(3):
        R = SO3.random_rotation(rotated.generator(index, fixed=True))
        expected = FieldType.image(SO3, 1).rotate(upright[index][0][None], R, mode="nearest")
        assert_close(rotated[index][0], expected[0])
    by_points = load(config(root, occupancy="gaussian", fill=0.6, size=12, test_rotation="so3")).test
    by_voxels = load(config(root, occupancy="gaussian", fill=0.6, size=12, test_rotation="so3", rotate="voxels")).test
    upright = load(config(root, occupancy="gaussian", fill=0.6, size=12)).test
    errors = [(by_points[i][0] - by_voxels[i][0]).norm() / (by_points[i][0] - upright[i][0]).norm() for i in range(10)]
    assert max(errors) < 0.8  # closer to each other than to no rotation


def test_rotation_about_the_vertical_keeps_heights(root):
    """Heights are along the last axis, z."""
    upright, about_z, about_any = (
        load(config(root, size=32, test_rotation=kind)).test for kind in ("none", "z", "so3")
    )

    def levels(part, index):
        return part[index][0][0].sum(dim=(0, 1)) > 0

    assert all((levels(upright, i) == levels(about_z, i)).all() for i in range(10))
    assert not all((levels(upright, i) == levels(about_any, i)).all() for i in range(10))
    assert all((upright[i][0] != about_z[i][0]).any() for i in range(10))


def test_z_rotations_keep_the_z_coordinate():
    R = draw_rotation("z", torch.Generator().manual_seed(1))
    points = torch.randn(5, 3, dtype=torch.float64)
    assert_close((points @ R.T)[:, 2], points[:, 2])
    assert (points @ R.T - points)[:, :2].abs().max() > 0.1
    assert_close(points @ draw_rotation("none", torch.Generator()).T, points)


def test_tilted_grid_rotates_all_objects_by_one_rotation(root):
    """Oracle: the points, rotated by hand, also about the object's own vertical."""
    for rotation in ("none", "z", "so3"):
        tilted = load(config(root, size=12, grid="tilted", occupancy="gaussian", test_rotation=rotation)).test
        for index in (0, 7):
            R = draw_rotation(rotation, tilted.generator(index, fixed=True))
            points = tilted.points[index].double() @ R.T @ TILT.T
            assert_close(tilted[index][0], voxelize(points.float()[None], 12, fill=0.95, width=0.7)[0])


def test_training_clouds_are_jittered_before_they_are_tilted(root):
    train = load(config(root, size=12, grid="tilted", occupancy="gaussian", augment="jitter")).train
    points = jitter(train.points[3].float(), train.generator(3)) @ TILT.float().T
    assert_close(train[3][0], voxelize(points[None], 12, fill=0.95, width=0.7)[0])


@pytest.mark.parametrize("grid", ["aligned", "tilted"])
def test_without_rotation_points_and_voxels_agree(root, grid):
    points, voxels = (load(config(root, grid=grid, rotate=rotate)).test for rotate in ("points", "voxels"))
    assert all(torch.equal(points[i][0], voxels[i][0]) for i in range(10))


def test_tilted_voxels_rotate_about_the_vertical_of_the_object(root):
    options = {"size": 24, "grid": "tilted", "occupancy": "gaussian", "test_rotation": "z"}
    by_points, by_voxels = (load(config(root, rotate=rotate, **options)).test for rotate in ("points", "voxels"))
    upright = load(config(root, **options | {"test_rotation": "none"})).test
    errors = [(by_points[i][0] - by_voxels[i][0]).norm() / (by_points[i][0] - upright[i][0]).norm() for i in range(10)]
    assert sorted(errors)[5] < 0.5  # the median: small rotations prove nothing


def test_tilted_axes_are_far_from_lines_of_voxels():
    lines = torch.tensor([line for line in product((-1.0, 0.0, 1.0), repeat=3) if any(line)], dtype=torch.float64)
    cosines = (lines / lines.norm(dim=1, keepdim=True)) @ TILT
    assert cosines.max() < math.cos(math.radians(26))


@pytest.mark.parametrize("options", [{"train_rotation": "so3"}, {"train_rotation": "z"}, {"augment": "jitter"}])
def test_random_numbers_depend_on_seed_epoch_and_sample_only(root, options):
    train = load(config(root, **options)).train
    first = samples(train)
    torch.manual_seed(7)
    assert_close([train[index] for index in reversed(range(20))][::-1], first, rtol=0, atol=0)
    train.set_epoch(1)
    assert all((a != b).any() for (a, _), (b, _) in zip(first, samples(train), strict=True))
    train.set_epoch(0)
    assert_close(samples(train), first, rtol=0, atol=0)
    fewer = load(config(root, validation=7, **options)).train
    assert_close(fewer[2], first[int(fewer.numbers[2])], rtol=0, atol=0)
    other = load(config(root, seed=1, **options)).train
    assert any((a != b).any() for (a, _), (b, _) in zip(first, samples(other), strict=True))


def test_test_objects_have_a_fixed_rotation(root):
    splits = load(config(root, train_rotation="so3", test_rotation="so3", augment="jitter", validation=5))
    for part in (splits.validation, splits.test):
        first = samples(part)
        part.set_epoch(4)
        assert_close(samples(part), first, rtol=0, atol=0)


def test_training_objects_can_keep_one_rotation(root):
    once = load(config(root, train_rotation="so3", rotate_once=True)).train
    upright = load(config(root)).train
    first = samples(once)
    once.set_epoch(1)
    assert_close(samples(once), first, rtol=0, atol=0)
    assert all(float((a - b).abs().max()) > 0 for (a, _), (b, _) in zip(first, samples(upright), strict=True))
    jittered = load(config(root, train_rotation="so3", rotate_once=True, augment="jitter")).train
    before = samples(jittered)
    jittered.set_epoch(1)
    assert any(float((a - b).abs().max()) > 0 for (a, _), (b, _) in zip(before, samples(jittered), strict=True))


def test_one_rotation_needs_a_rotation():
    with pytest.raises(ValueError, match="rotate_once needs train_rotation: z or so3, got none"):
        ModelNet10Config(rotate_once=True)


def test_jitter_stays_in_the_unit_sphere():
    points = torch.randn(500, 3)
    points = points / points.norm(dim=1, keepdim=True)
    for seed in range(20):
        moved = jitter(points, torch.Generator().manual_seed(seed))
        assert 0.7 < moved.norm(dim=1).max() < 1.06  # up to five standard deviations of the noise


@pytest.mark.parametrize("up, axis", [("x", 0), ("y", 1), ("z", 2)])
def test_up_becomes_the_last_axis_by_a_rotation(tmp_path, up, axis):
    points, labels = clouds(10)
    points[:, :, axis] *= 5  # taller than wide
    path = write_clouds(tmp_path / f"{up}.npz", train_points=points, train_labels=labels)
    train = load(config(path, up=up)).train
    spread = train.points.float().std(dim=1)
    assert (spread[:, 2] > 2 * spread[:, :2].amax(dim=1)).all()
    plain = load(config(path)).train
    permutation = torch.linalg.lstsq(plain.points[0].float(), train.points[0].float()).solution
    assert float(torch.linalg.det(permutation)) == pytest.approx(1, abs=1e-3)
