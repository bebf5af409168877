"""Points on the surface of a mesh."""

import pytest
import torch
from torch.testing import assert_close

from data.makers import off
from steerformer.data import DataError
from steerformer.data.base import generator
from steerformer.data.meshes import farthest, on_surface, read_off, sample_all


@pytest.mark.parametrize("header", ["OFF\n", "OFF", "OFF # a comment\n", "\nOFF\n# another\n"])
@pytest.mark.parametrize("triangles", [True, False])
def test_headers_and_polygons_of_all_kinds_are_read(tmp_path, header, triangles):
    path = tmp_path / "box.off"
    path.write_text(off((1, 2, 3), header=header, triangles=triangles))
    vertices, faces = read_off(path)
    assert vertices.shape == (8, 3) and faces.shape == (12, 3)
    a, b, c = vertices[faces].unbind(dim=1)
    assert float(torch.linalg.cross(b - a, c - a).norm(dim=1).sum()) / 2 == pytest.approx(22)


def test_points_spread_over_a_box_by_area(tmp_path):
    path = tmp_path / "box.off"
    path.write_text(off((1, 2, 3)))
    points = on_surface(*read_off(path), 20000, generator(0))
    size = torch.tensor([1.0, 2.0, 3.0])
    on_side = torch.stack([points.abs() < 1e-6, (points - size).abs() < 1e-6])
    assert (on_side.any(dim=2).any(dim=0)).all()
    shares = on_side.float().mean(dim=1)
    expected = torch.tensor([6.0, 3.0, 2.0]) / 22
    assert_close(shares, expected.expand(2, 3), rtol=0, atol=0.012)  # four standard deviations
    assert_close(points.mean(dim=0), size / 2, rtol=0, atol=0.03)


def test_farthest_points_are_chosen_one_after_another():
    """Oracle: the definition, as a double loop."""
    points = torch.randn(2, 30, 3)
    for cloud, chosen in zip(points, farthest(points, 8), strict=True):
        kept = [int((cloud - cloud.mean(dim=0)).norm(dim=1).argmax())]
        while len(kept) < 8:
            kept.append(int(torch.stack([(cloud - cloud[k]).norm(dim=1) for k in kept]).amin(dim=0).argmax()))
        assert_close(chosen, cloud[kept])


def test_a_mesh_has_the_same_points_in_any_company(tmp_path):
    paths = [tmp_path / f"{number}.off" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_text(off((1, 1 + number, 2)))
    together, alone = sample_all(paths, count=20), sample_all(paths[2:], first=2, count=20)
    assert_close(together[2:], alone, rtol=0, atol=0)
    assert together.shape == (3, 20, 3)


GOOD = off()


@pytest.mark.parametrize(
    "text, message",
    [
        ("ply\n", "first word is not OFF"),
        ("", "first word is not OFF"),
        (GOOD[:60], "cut short or damaged"),
        (GOOD[:-9], "cut short or damaged"),
        (GOOD.replace("3 0 1 3", "3 0 1 99"), "cut short or damaged"),
        (GOOD.replace("1.0", "one"), "cut short or damaged"),
        (GOOD.replace("1.0", "nan"), "cut short or damaged"),
        (off((0, 0, 0)), "has no surface"),
        ("OFF\n3 0 0\n0 0 0\n1 0 0\n0 1 0\n", "has no surface"),
    ],
)
def test_bad_meshes_are_named(tmp_path, text, message):
    path = tmp_path / "bad.off"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"bad\.off.*{message}"):
        sample_all([path], count=8)


def test_bytes_and_absent_files_are_named(tmp_path):
    (tmp_path / "bytes.off").write_bytes(b"OFF\xff\xfe")
    with pytest.raises(DataError, match=r"bytes\.off is no \.off file"):
        read_off(tmp_path / "bytes.off")
    with pytest.raises(DataError, match=r"cannot read .*absent\.off"):
        read_off(tmp_path / "absent.off")
