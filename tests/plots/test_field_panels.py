"""Figures of fields: what is drawn is the field, in the frame of the image, and rotates with it."""

import numpy as np
import pytest
import torch
from matplotlib.quiver import Quiver

from steerformer import SO2, SO3, FieldType, from_cartesian, viz
from steerformer.fields import voxel_coordinates


def panel(figure, title):
    return next(axes for axes in figure.axes if axes.get_title() == title)


def image(axes):
    return np.asarray(axes.images[0].get_array())


def arrows(axes):
    """Rows (place down, place right, component down, component right) of all arrows."""
    (quiver,) = (found for found in axes.collections if isinstance(found, Quiver))
    return np.stack([quiver.Y, quiver.X, quiver.V, quiver.U], axis=1)


def sorted_rows(values):
    return np.array(sorted(np.round(values, 4).tolist()))


def test_arrow_points_down_and_right_on_the_screen():
    field_type = FieldType.vectors(SO2, 1)
    v = torch.zeros(1, 1, 2, 7, 9)
    v[0, 0, :, 2, 5] = torch.tensor([3.0, 4.0])  # 3 along the rows, 4 along the columns
    axes = panel(viz.field(from_cartesian(v, field_type), field_type), "degree 1, copy 0")
    (drawn,) = (row for row in arrows(axes) if np.hypot(*row[2:]) > 0)
    assert drawn.tolist() == [2, 5, 3, 4]
    start, end = axes.transData.transform([(5, 2), (5 + 4, 2 + 3)])
    assert end[0] > start[0] and end[1] < start[1]  # screen coordinates point upwards
    (quiver,) = axes.collections
    assert (quiver.angles, quiver.scale_units) == ("xy", "xy")
    assert image(axes)[2, 5] == 5 and image(axes).sum() == 5


@pytest.mark.parametrize("size", [7, 8, 25, 29, 30, 50])
def test_arrows_rotate_with_the_field(size):
    """On large grids not all voxels have arrows, and those that have rotate onto each other."""
    field_type = FieldType.vectors(SO2, 1)
    x = field_type.randn(1, size)
    upright = arrows(panel(viz.field(x, field_type), "degree 1, copy 0"))
    assert 36 <= len(upright) <= 14**2
    center = (size - 1) / 2
    for R in SO2.grid_rotations():
        found = arrows(panel(viz.field(field_type.rotate(x, R), field_type), "degree 1, copy 0"))
        moved = np.concatenate([(upright[:, :2] - center) @ R.T.numpy() + center, upright[:, 2:] @ R.T.numpy()], axis=1)
        assert np.allclose(sorted_rows(found), sorted_rows(moved), atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_volumes_have_arrows_inside_the_middle_slice_over_the_component_across(axis):
    field_type, size = FieldType.vectors(SO3, 1), (5, 6, 7)
    points = voxel_coordinates(size)
    v = torch.stack([points[..., 1], 10 + points[..., 2], 20 + points[..., 0]])[None, None].float()
    axes = panel(viz.field(from_cartesian(v, field_type), field_type, axis=axis), "degree 1, copy 0")
    rows, columns = (other for other in range(3) if other != axis)
    expected = v[0, 0].select(axis + 1, size[axis] // 2).numpy()
    assert np.allclose(image(axes), expected[axis])
    for row, column, down, right in arrows(axes):
        assert np.allclose([down, right], expected[[rows, columns], int(row), int(column)])
    assert (axes.get_ylabel(), axes.get_xlabel()) == (f"axis {rows} [voxels]", f"axis {columns} [voxels]")


def test_imaginary_parts_of_vectors_in_3d_are_not_drawn():
    field_type = FieldType.vectors(SO3, 1)
    x = field_type.randn(1, 5)
    x[:, :3] = 0
    axes = panel(viz.field(x, field_type), "degree 1, copy 0")
    assert not image(axes).any() and not arrows(axes)[:, 2:].any()


def test_scalars_and_norms_are_images(group):
    field_type = FieldType(group, (2, 0, 1))
    x = field_type.randn(3, 5)
    figure = viz.field(x, field_type, sample=1)
    scalars, degree_2 = field_type.split(x)
    middle = (lambda values: values) if group is SO2 else (lambda values: values[..., 2])
    for copy in (0, 1):
        drawn = image(panel(figure, f"degree 0, copy {copy}"))
        assert np.allclose(drawn, middle(scalars[1, 0, 0, copy]))
    norm = degree_2[1].square().sum(dim=(0, 1)).sqrt()[0]
    assert np.allclose(image(panel(figure, "degree 2, copy 0")), middle(norm), atol=1e-6)
    R = group.rotation(np.pi / 2, None if group is SO2 else (0.0, 0.0, 1.0))
    rotated = viz.field(field_type.rotate(x, R), field_type, sample=1)
    for title in ("degree 0, copy 1", "degree 2, copy 0"):
        expected = np.rot90(image(panel(figure, title)), k=1)  # the first axis towards the second, counterclockwise
        assert np.allclose(image(panel(rotated, title)), expected, atol=1e-5)


def test_images_are_gray_and_copies_are_limited(group):
    figure = viz.field(FieldType.image(group, 9).randn(1, 5), FieldType.image(group, 9), copies=3)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [f"degree 0, copy {copy}" for copy in range(3)]
    assert all(axes.images[0].get_cmap().name == "gray" for axes in panels)


def test_zero_fields_and_gradients_are_drawn(group):
    field_type = FieldType(group, (1, 1, 1))
    x = torch.zeros(1, field_type.channels, *[4] * group.dim, requires_grad=True)
    figure = viz.field(x, field_type)
    figure.draw_without_rendering()
    assert not image(panel(figure, "degree 1, copy 0")).any()


def test_fields_without_space_and_wrong_channels_raise(group, unchecked):
    field_type = FieldType(group, (1, 1))
    with pytest.raises(ValueError, match=r"two or three spatial axes, got a grid \(\)"):
        viz.field(field_type.randn(1), field_type)
    with pytest.raises(ValueError, match="channels on axis 1"):
        viz.field(torch.randn(1, 3, 4, 4), field_type)
    with pytest.raises(TypeError, match=r"viz\.field needs field types"):
        viz.field(torch.randn(1, 3, 4, 4), "3xreal")
    with pytest.raises(ValueError, match=r"got a grid \(4, 4, 4\) and axis 3"):
        viz.field(torch.randn(1, 1, 4, 4, 4), FieldType.image(SO3, 1), axis=3)
