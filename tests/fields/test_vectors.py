"""Vector fields: Cartesian components in and out, and how they rotate."""

import pytest
import torch
from torch.testing import assert_close

import steerformer as sf
from steerformer import SO2, SO3, FieldType
from steerformer.fields import permute_axes, voxel_coordinates


def rotated(v, R):
    """The law $[Rv](x) = R v(R^-1 x)$ for a rotation of the grid, without field types."""
    mixed = torch.einsum("ab,ncb...->nca...", R, v)
    return permute_axes(mixed.flatten(1, 2), R).unflatten(1, v.shape[1:3])


def test_components_rotate_as_vectors_under_all_rotations_of_the_grid(group, float64):
    field_type = FieldType.vectors(group, 3)
    space = (3, 4, 5)[: group.dim]
    x, v = field_type.randn(2, space), torch.randn(2, 3, group.dim, *space)
    for R in group.grid_rotations():
        out = sf.to_cartesian(field_type.rotate(x, R), field_type)
        assert_close(out, rotated(sf.to_cartesian(x, field_type), R), rtol=0, atol=1e-14)
        into = sf.from_cartesian(rotated(v, R), field_type)
        assert_close(into, field_type.rotate(sf.from_cartesian(v, field_type), R), rtol=0, atol=1e-14)


def test_components_rotate_as_vectors_under_random_rotations(group, float64):
    field_type = FieldType.vectors(group, 3)
    for _ in range(5):
        R, x = group.random_rotation(), field_type.randn(2)
        out = sf.to_cartesian(field_type.rotate(x, R), field_type)
        assert_close(out, sf.to_cartesian(x, field_type) @ R.mT, rtol=0, atol=1e-14)


def test_analytic_vector_fields_rotate_at_all_angles(group, float64):
    """The oracle is a formula: v(x) = (a . x) b rotates to (Ra . x) Rb."""
    field_type, points = FieldType.vectors(group, 1), voxel_coordinates((5,) * group.dim)
    for _ in range(5):
        R, (a, b) = group.random_rotation(), torch.randn(2, group.dim)
        moved = torch.einsum("...a,a,b->b...", points @ R, a, b)[None, None]  # v(R^-1 x)
        x = torch.einsum("ij,bj...->bi...", field_type.matrix(R), sf.from_cartesian(moved, field_type))
        expected = torch.einsum("...a,a,b->b...", points, R @ a, R @ b)[None, None]
        assert_close(sf.to_cartesian(x, field_type), expected, rtol=0, atol=1e-12)


def test_components_are_those_of_the_harmonics(group, float64):
    """The definitions, v_a = Re <Y_1(e_a), f> and f = sum_a v_a Y_1(e_a), with the group's harmonics as oracle."""
    field_type = FieldType.vectors(group, 2)
    harmonics = group.harmonics(1, torch.eye(group.dim)).to(torch.complex128)  # axis, order
    x = field_type.randn(3, 4)
    (pieces,) = field_type.split(x)
    f = torch.complex(pieces[:, 0], pieces[:, 1])
    expected = torch.einsum("ao,noc...->nca...", harmonics.conj(), f).real
    assert_close(sf.to_cartesian(x, field_type), expected, rtol=0, atol=1e-14)
    v = torch.randn(3, 2, group.dim, *[4] * group.dim)
    f = torch.einsum("ao,nca...->noc...", harmonics, v.to(harmonics))
    assert_close(sf.from_cartesian(v, field_type), field_type.pack([torch.stack([f.real, f.imag], 1)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_round_trip_is_exact_bit_by_bit(group, dtype):
    field_type = FieldType.vectors(group, 4)
    for space in ((), (3,) * group.dim):
        v = torch.randn(2, 4, group.dim, *space).to(dtype)
        found = sf.to_cartesian(sf.from_cartesian(v, field_type), field_type)
        assert found.dtype == dtype and torch.equal(found, v)


def test_nothing_is_lost_in_2d_and_the_imaginary_part_in_3d():
    for group in (SO2, SO3):
        field_type = FieldType.vectors(group, 2)
        x = field_type.randn(2, 3)
        found = sf.from_cartesian(sf.to_cartesian(x, field_type), field_type)
        if group is SO2:
            assert torch.equal(found, x)
        else:
            re, im = found.chunk(2, dim=1)
            assert torch.equal(re, x.chunk(2, dim=1)[0]) and not im.any()


def test_real_vectors_in_3d_are_their_components(float64):
    field_type, R = FieldType.vectors(SO3, 2, real=True), SO3.random_rotation()
    x, v = field_type.randn(2), torch.randn(2, 2, 3, 4, 4, 4)
    assert field_type.channels == 6
    assert torch.equal(sf.from_cartesian(sf.to_cartesian(x, field_type), field_type), x)
    assert torch.equal(sf.to_cartesian(sf.from_cartesian(v, field_type), field_type), v)
    found = sf.to_cartesian(field_type.rotate(x, R), field_type)
    assert_close(found, sf.to_cartesian(x, field_type) @ R.mT, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="real fields of SO2 are scalars"):
        FieldType.vectors(SO2, 2, real=True)


def test_imaginary_part_in_3d_is_a_vector_read_after_a_multiplication_by_minus_i(float64):
    field_type, R = FieldType.vectors(SO3, 2), SO3.random_rotation()
    x = field_type.randn(2)

    def imaginary(x):
        re, im = x.chunk(2, dim=1)
        return sf.to_cartesian(torch.cat([im, -re], dim=1), field_type)

    assert torch.equal(imaginary(x), field_type.split(x)[0][:, 1].mT)
    assert_close(imaginary(field_type.rotate(x, R)), imaginary(x) @ R.mT, rtol=0, atol=1e-14)


def test_gradients_are_exact_and_zero_for_the_imaginary_part_in_3d(group, float64):
    field_type = FieldType.vectors(group, 2)
    x = field_type.randn(2, 2).requires_grad_()
    v = torch.randn(2, 2, group.dim, *[2] * group.dim, requires_grad=True)
    torch.autograd.gradcheck(lambda x: sf.to_cartesian(x, field_type), x)
    torch.autograd.gradcheck(lambda v: sf.from_cartesian(v, field_type), v)
    sf.to_cartesian(x, field_type).sum().backward()
    components = 2 * group.dim
    assert (x.grad[:, :components] == 1).all() and not x.grad[:, components:].any()


def test_networks_map_images_to_rotating_vectors(group):
    """A network from an image to vectors, read as components, obeys the law of vectors; scalars do not."""
    image, flow = FieldType.image(group, 1), FieldType.vectors(group, 2)
    net = sf.nn.Conv(image, flow, kernel_size=3).double()
    x = image.randn(1, 5, dtype=torch.float64)
    for R in group.grid_rotations():
        found = sf.to_cartesian(net(image.rotate(x, R)), flow)
        assert_close(found, rotated(sf.to_cartesian(net(x), flow), R), rtol=0, atol=1e-12)
        assert_close(found.norm(dim=2), permute_axes(sf.to_cartesian(net(x), flow).norm(dim=2), R))
    unmixed = permute_axes(sf.to_cartesian(net(x), flow).flatten(1, 2), R)
    assert (found.flatten(1, 2) - unmixed).abs().max() > 0.1


def test_vectors_among_other_degrees_are_selected_first(group, unchecked):
    whole = FieldType(group, (2, 3))
    x = whole.randn(1, 3)
    for action in (sf.to_cartesian, sf.from_cartesian):
        with pytest.raises(ValueError, match=r"takes vectors only, such as .*'1x1'\), got .*select\(x, 1\)"):
            action(x, whole)
        with pytest.raises(ValueError, match="takes vectors only"):
            action(x, FieldType.image(group, 6))
    assert sf.to_cartesian(whole.select(x, 1), whole.subtype(1)).shape == (1, 3, group.dim, *[3] * group.dim)


def test_wrong_shapes_and_dtypes_raise(group, unchecked):
    field_type = FieldType.vectors(group, 2)
    for shape in ((1, 2), (1, 3, group.dim), (1, 2, group.dim + 1, 4), (1, 2 * group.dim, 4, 4)):
        with pytest.raises(ValueError, match=rf"shape \(batch, 2, {group.dim}, \*space\) for .*, got \({shape[0]}, "):
            sf.from_cartesian(torch.randn(shape), field_type)
    with pytest.raises(ValueError, match=r"real floating-point numbers, got torch.int64"):
        sf.from_cartesian(torch.ones(1, 2, group.dim, dtype=torch.int64), field_type)
    with pytest.raises(ValueError, match=rf"needs {field_type.channels} channels"):
        sf.to_cartesian(torch.randn(1, 1), field_type)
