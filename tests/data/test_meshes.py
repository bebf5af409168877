"""Sampling of points on meshes."""

import pytest
import torch
from torch.testing import assert_close

from data.makers import off
from steerformer.data import DataError
from steerformer.data.meshes import farthest_point_sampling, read_off, sample_meshes, sample_surface
from steerformer.data.seeding import seeded_generator


@pytest.mark.parametrize("header", ["OFF\n", "OFF", "OFF # a comment\n", "\nOFF\n# another\n"])
@pytest.mark.parametrize("triangles", [True, False])
def test_all_headers_and_polygons_are_read(tmp_path, header, triangles):
    path = tmp_path / "box.off"
    path.write_text(off((1, 2, 3), header=header, triangles=triangles))
    vertices, faces = read_off(path)
    assert vertices.shape == (8, 3) and faces.shape == (12, 3)
    a, b, c = vertices[faces].unbind(dim=1)
    assert float(torch.linalg.cross(b - a, c - a).norm(dim=1).sum()) / 2 == pytest.approx(22)


def test_points_are_uniform_over_a_box(tmp_path):
    path = tmp_path / "box.off"
    path.write_text(off((1, 2, 3)))
    points = sample_surface(*read_off(path), 20000, seeded_generator(0))
    size = torch.tensor([1.0, 2.0, 3.0])
    on_side = torch.stack([points.abs() < 1e-6, (points - size).abs() < 1e-6])
    assert (on_side.any(dim=2).any(dim=0)).all()
    shares = on_side.float().mean(dim=1)
    expected = torch.tensor([6.0, 3.0, 2.0]) / 22
    assert_close(shares, expected.expand(2, 3), rtol=0, atol=0.012)  # four standard deviations
    assert_close(points.mean(dim=0), size / 2, rtol=0, atol=0.03)


def test_farthest_point_sampling_follows_its_definition():
    """Oracle: a double loop."""
    points = torch.randn(2, 30, 3)
    for cloud, chosen in zip(points, farthest_point_sampling(points, 8), strict=True):
        kept = [int((cloud - cloud.mean(dim=0)).norm(dim=1).argmax())]
        while len(kept) < 8:
            kept.append(int(torch.stack([(cloud - cloud[k]).norm(dim=1) for k in kept]).amin(dim=0).argmax()))
        assert_close(chosen, cloud[kept])


def test_points_do_not_depend_on_other_meshes(tmp_path):
    paths = [tmp_path / f"{number}.off" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_text(off((1, 1 + number, 2)))
    together, alone = sample_meshes(paths, count=20), sample_meshes(paths[2:], first=2, count=20)
    assert_close(together[2:], alone, rtol=0, atol=0)
    assert together.shape == (3, 20, 3)


GOOD = off()


@pytest.mark.parametrize(
    "text, message",
    [
        ("ply\n", "does not start with OFF"),
        ("", "does not start with OFF"),
        (GOOD[:60], "truncated or damaged"),
        (GOOD[:-9], "truncated or damaged"),
        (GOOD.replace("3 0 1 3", "3 0 1 99"), "truncated or damaged"),
        (GOOD.replace("1.0", "one"), "truncated or damaged"),
        (GOOD.replace("1.0", "nan"), "truncated or damaged"),
        (off((0, 0, 0)), "has no surface"),
        ("OFF\n3 0 0\n0 0 0\n1 0 0\n0 1 0\n", "has no surface"),
    ],
)
def test_invalid_meshes_are_named(tmp_path, text, message):
    path = tmp_path / "bad.off"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"bad\.off.*{message}"):
        sample_meshes([path], count=8)


def test_binary_and_missing_files_are_named(tmp_path):
    (tmp_path / "bytes.off").write_bytes(b"OFF\xff\xfe")
    with pytest.raises(DataError, match=r"bytes\.off is not an \.off file"):
        read_off(tmp_path / "bytes.off")
    with pytest.raises(DataError, match=r"cannot read .*absent\.off"):
        read_off(tmp_path / "absent.off")
