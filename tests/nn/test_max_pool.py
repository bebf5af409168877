"""Norm-max pooling against a double loop over windows."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from nn.layers import complex_pieces, features, gapped, image, in_space, worst_error
from steerformer import SO2, FieldType

pytestmark = pytest.mark.usefixtures("float64")
WINDOWS = [(1, 1), (2, 2), (3, 3), (3, 2), (2, 3), (3, 1), (2, 1)]  # width, stride
SIZES = {2: ((5, 6), (4, 3)), 3: ((4, 3, 5),)}


def voxels_of_window(size, outputs, place, width, stride):
    """All voxels that a centered window covers, also in part; axes are counted from the center."""
    center = (size - 1) / 2 + stride * (place - (outputs - 1) / 2)
    first, last = center - (width - 1) / 2, center + (width - 1) / 2
    return range(int(np.floor(first)), int(np.ceil(last)) + 1)


def by_definition(pool, x):
    """For each window and copy, the vector of largest norm, voxel by voxel."""
    pieces, space = complex_pieces(pool.in_type, x), np.array(x.shape[2:])
    outputs = (space - np.array(pool.kernel_size)) // np.array(pool.stride) + 1
    found = {}
    for degree in pool.in_type.degrees:
        values = pieces[degree]
        found[degree] = np.zeros((*values.shape[:3], *outputs), dtype=values.dtype)
        for place in itertools.product(*map(range, outputs)):
            axes = zip(space, outputs, place, pool.kernel_size, pool.stride, strict=True)
            window = list(itertools.product(*(voxels_of_window(*axis) for axis in axes)))
            for sample, copy in itertools.product(range(len(values)), range(values.shape[2])):
                vectors = [values[(sample, slice(None), copy, *voxel)] for voxel in window]
                longest = max(vectors, key=np.linalg.norm)
                found[degree][(sample, slice(None), copy, *place)] = longest
    return found


def test_pool_takes_the_longest_vector_of_each_window(group):
    for (width, stride), size in itertools.product(WINDOWS, SIZES[group.dim]):
        pool = sf.nn.NormMaxPool(gapped(group), kernel_size=width, stride=stride)
        x = pool.in_type.randn(2, in_space(group, size))
        expected, found = by_definition(pool, x), complex_pieces(pool.out_type, pool(x))
        for degree in pool.in_type.degrees:
            np.testing.assert_array_equal(found[degree], expected[degree], err_msg=f"{width} {stride} {size}")


def test_pooling_of_real_scalars_takes_the_largest_absolute_value(group):
    pool = sf.nn.NormMaxPool(image(group), kernel_size=2)
    x = pool.in_type.randn(2, 6)
    plain = {2: F.max_pool2d, 3: F.max_pool3d}[group.dim]
    assert_close(pool(x).abs(), plain(x.abs(), 2))
    assert (pool(x) < 0).any()


def test_pool_is_exact_under_grid_rotations(group):
    for width, stride in WINDOWS:
        pool = sf.nn.NormMaxPool(gapped(group), kernel_size=width, stride=stride)
        for size in ((5, 6, 4), 5) if group is SO2 else ((4, 3, 5),):
            assert worst_error(pool, size) < 1e-10, (width, stride, size)


def test_largest_components_instead_of_largest_norms_are_not_equivariant(group):
    """A negative control: torch's max pooling of the channels."""
    plain = {2: F.max_pool2d, 3: F.max_pool3d}[group.dim]
    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(lambda x: plain(x, 2), in_type=features(group), out_type=features(group), size=6)


def test_first_window_at_the_edge_is_not_equivariant(group):
    """A negative control: a grid that windows do not fill, not cropped on both sides."""
    pool = sf.nn.NormMaxPool(features(group), kernel_size=2)

    def from_the_first_voxel(x):
        return pool(x[(..., *(slice(0, 4),) * group.dim)])

    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(from_the_first_voxel, in_type=features(group), out_type=features(group), size=5)
    sf.testing.assert_equivariant(pool, size=5, tolerance=1e-10)


def test_anisotropic_windows(group):
    size, spacing = (1, 2, 2)[: group.dim], (2.0, 1.0, 1.0)[: group.dim]
    pool = sf.nn.NormMaxPool(features(group), kernel_size=size)
    assert pool(pool.in_type.randn(1, 6)).shape[2:] == (6, 3, 3)[: group.dim]
    sf.testing.assert_equivariant(pool, size=(3, 6, 6)[: group.dim], spacing=spacing, tolerance=1e-10)


def test_gradient_reaches_the_chosen_vectors_only(group):
    pool = sf.nn.NormMaxPool(gapped(group), kernel_size=2)
    x = pool.in_type.randn(1, 4).requires_grad_()
    y = pool(x)
    y.sum().backward()
    assert x.grad.sum() == y.numel() and set(x.grad.unique().tolist()) == {0.0, 1.0}
    small = sf.nn.NormMaxPool(FieldType(group, (0, 1)), kernel_size=2)
    assert torch.autograd.gradcheck(small, small.in_type.randn(1, 2).requires_grad_())


def test_overlapping_windows_add_their_gradients():
    pool = sf.nn.NormMaxPool(FieldType(SO2, (1,)), kernel_size=3, stride=1)
    x = torch.zeros(1, 2, 5, 5)
    x[0, :, 2, 2] = 1.0
    x.requires_grad_()
    pool(x).sum().backward()
    assert x.grad[0, :, 2, 2].tolist() == [9.0, 9.0]


def test_zeros_short_vectors_and_low_precision(group):
    pool = sf.nn.NormMaxPool(features(group), kernel_size=2)
    assert not pool(torch.zeros(1, features(group).channels, *in_space(group, 4))).any()
    x = pool.in_type.randn(1, 4)
    for scale in (1e-5, 1e30):
        assert_close(pool((scale * x).float()).double() / scale, pool(x), rtol=1e-5, atol=1e-5)
    for dtype in (torch.float16, torch.bfloat16):
        half = x.to(dtype)
        assert pool(half).dtype == dtype
        assert_close(pool(half).double(), pool(half.double()))


def test_windows_that_do_not_fit_raise(group, unchecked):
    pool = sf.nn.NormMaxPool(features(group), kernel_size=4)
    with pytest.raises(ValueError, match="a window of 4 voxels does not fit into spatial axis 1, which has 3"):
        pool(pool.in_type.randn(1, (5, 3, 5)[: group.dim]))
    for options in ({"kernel_size": 0}, {"kernel_size": 2, "stride": 0}, {"kernel_size": (2,)}):
        with pytest.raises(ValueError, match="is an integer >= 1"):
            sf.nn.NormMaxPool(features(group), **options)
    with pytest.raises(TypeError, match="NormMaxPool needs field types"):
        sf.nn.NormMaxPool(4, kernel_size=2)
