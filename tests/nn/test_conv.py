"""Convolution against its definition; options; variance at initialization."""

import itertools
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import oracles
import steerformer as sf
from nn.layers import features, gapped, image, in_space, many
from steerformer import SO2, FieldType
from steerformer.kernels import KernelBasis, VoxelKernels
from steerformer.nn.conv import centered_margin
from steerformer.testing import blobs, equivariance_error

pytestmark = pytest.mark.usefixtures("float64")
CONVOLVE = {2: F.conv2d, 3: F.conv3d}


def as_complex(field_type, x, axis=1):
    """Complex field, from the documented order of channels: first all real parts, then all imaginary parts."""
    re, im = (x, torch.zeros_like(x)) if field_type.real else x.chunk(2, dim=axis)
    return torch.complex(re, im).detach().numpy()


def complex_kernel(conv):
    """Complex kernel ``(out, in, *size)`` from the first column of its real form, or the first row for real output."""
    kernel = conv.kernel()
    first = kernel if conv.in_type.real else kernel[:, : conv.in_type.channels // 2]
    if not conv.out_type.real:
        return as_complex(conv.out_type, first, axis=0)
    imaginary = 0 if conv.in_type.real else -1j * kernel[:, conv.in_type.channels // 2 :].detach().numpy()
    return first.detach().numpy() + imaginary


def convolve_by_definition(K, f, *, outputs, stride=1, dilation=1):
    r"""$g(x) = \sum_z K(z) f(x+z)$ voxel by voxel, with zeros outside f.

    x, z and the voxels of f are counted from the center, so centered sampling is part of the definition.
    """
    space, size = np.array(f.shape[2:]), np.array(K.shape[2:])
    g = np.zeros((len(f), len(K), *outputs), dtype=complex)
    for place in itertools.product(*map(range, outputs)):
        x = stride * (np.array(place) - (np.array(outputs) - 1) / 2)
        for offset in itertools.product(*map(range, size)):
            z = dilation * (np.array(offset) - (size - 1) / 2)
            source = x + z + (space - 1) / 2
            assert (source == source.round()).all(), "sampling between voxels"
            if (source >= 0).all() and (source < space).all():
                voxel = tuple(source.astype(int))
                g[(..., *place)] += f[(..., *voxel)] @ K[(..., *offset)].T
    return g


def assert_is_the_definition(conv, size, outputs):
    group = conv.in_type.group
    x = conv.in_type.randn(2, in_space(group, size))
    found = conv(x)
    assert tuple(found.shape[2:]) == tuple(outputs), conv
    expected = convolve_by_definition(
        complex_kernel(conv),
        as_complex(conv.in_type, x),
        outputs=outputs,
        stride=np.array(conv.stride),
        dilation=conv.dilation,
    )
    if conv.out_type.real:
        expected = expected.real
    np.testing.assert_allclose(as_complex(conv.out_type, found), expected, rtol=0, atol=1e-12, err_msg=f"{conv}")


OPTIONS = [  # options, size of the grid, size of the output
    ({"kernel_size": 3}, 4, 4),
    ({"kernel_size": 1}, 3, 3),
    ({"kernel_size": 3, "padding": 0}, 5, 3),
    ({"kernel_size": 3, "padding": 2}, 4, 6),
    ({"kernel_size": 2, "padding": 0, "max_impurity": 1.0}, 4, 3),
    ({"kernel_size": 2, "padding": 1, "max_impurity": 1.0}, 3, 4),
    ({"kernel_size": 3, "stride": 2}, 5, 3),
    ({"kernel_size": 4, "stride": 2}, 6, 3),
    ({"kernel_size": 2, "stride": 2, "padding": 0, "max_impurity": 1.0}, 6, 3),
    ({"kernel_size": 3, "stride": 2, "padding": 1}, 7, 4),
    ({"kernel_size": 3, "stride": 3}, 7, 3),
    ({"kernel_size": 3, "stride": 3, "padding": 0}, 7, 1),  # two would not be centered, three would need padding
    ({"kernel_size": 3, "stride": 3, "padding": 0}, 4, 2),  # one would not be centered, none is too few
    ({"kernel_size": 3, "stride": 3}, 5, 3),  # one more than ceil(5 / 3)
    ({"kernel_size": 1, "stride": 3, "padding": 0}, 5, 1),
    ({"kernel_size": 1, "padding": 2}, 2, 6),  # requested zeros
    ({"kernel_size": 3, "dilation": 2}, 5, 5),
    ({"kernel_size": 2, "dilation": 2, "stride": 2, "max_impurity": 1.0}, 5, 3),
    ({"kernel_size": 5, "padding": 0}, 5, 1),
]


def test_conv_matches_definition(group):
    for options, size, outputs in OPTIONS:
        conv = sf.nn.Conv(features(group), FieldType(group, (1, 1)), **options)
        assert_is_the_definition(conv, size, in_space(group, outputs))


@pytest.mark.parametrize("fields", [gapped, many], ids=["features", "far-degrees"])
def test_conv_with_real_fields_matches_definition(group, fields):
    """Images and complex fields on either side. Between far degrees the skipped arithmetic is all zeros."""
    for into, out in itertools.product((image, fields), repeat=2):
        conv = sf.nn.Conv(into(group), out(group), kernel_size=3)
        assert_is_the_definition(conv, 3, in_space(group, 3))


def test_no_window_lies_outside_the_grid_unless_requested():
    """Centering may change the number of outputs, but must not add windows of zeros."""
    for case in itertools.product(range(1, 9), range(1, 6), range(1, 6), (None, 0, 1, 2, 3)):
        _, window, _, padding = case
        try:
            margin = centered_margin(*case)
        except ValueError as problem:
            assert re.search("cannot be centered|does not fit", str(problem))
        else:
            assert margin < window or (padding is not None and padding >= window), case


def test_axes_may_have_different_options(group):
    size, kernel, stride = (4, 5, 3)[: group.dim], (2, 3, 1)[: group.dim], (2, 1, 1)[: group.dim]
    conv = sf.nn.Conv(image(group), features(group), kernel_size=kernel, stride=stride, max_impurity=1.0)
    assert_is_the_definition(conv, size, (2, 5, 3)[: group.dim])
    conv = sf.nn.Conv(image(group), features(group), kernel_size=3, padding=(0, 1, 2)[: group.dim])
    assert_is_the_definition(conv, size, (2, 5, 5)[: group.dim])


def test_conv_matches_plain_convolution_with_real_kernel(group):
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3)
    x = conv.in_type.randn(2, 4)
    expected = CONVOLVE[group.dim](x, conv.kernel(), padding=1)
    for mode in (True, False):
        assert_close(conv.train(mode)(x), expected, rtol=0, atol=1e-12)
        with torch.no_grad():
            assert_close(conv(x), expected, rtol=0, atol=1e-12)


def test_real_kernel_is_a_complex_multiplication(group):
    kernel = sf.nn.Conv(features(group), gapped(group), kernel_size=3).kernel()
    (a, b), (c, d) = (rows.chunk(2, dim=1) for rows in kernel.chunk(2, dim=0))
    assert_close(a, d, rtol=0, atol=0)
    assert_close(b, -c, rtol=0, atol=0)


def test_kernel_of_input_size_flattens(group):
    """The paper's layer before the head: the remaining vector is exactly equivariant."""
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=4, padding=0)
    x = conv.in_type.randn(2, 4)
    y = conv(x)
    assert y.shape == (2, gapped(group).channels, *in_space(group, 1))
    assert_close(y.flatten(1), x.flatten(1) @ conv.kernel().flatten(1).T)
    for R in group.grid_rotations():
        assert_close(conv(conv.in_type.rotate(x, R)).flatten(1), conv.out_type.rotate(y.flatten(1), R))


def test_conv_commutes_with_translations_away_from_edges(group):
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3)
    x, shift = conv.in_type.randn(1, 8), (2, -1, 1)[: group.dim]
    axes = list(range(2, x.ndim))
    moved_after, moved_before = torch.roll(conv(x), shift, axes), conv(torch.roll(x, shift, axes))
    inner = (..., *(slice(3, -3),) * group.dim)
    assert_close(moved_before[inner], moved_after[inner], rtol=0, atol=1e-12)
    assert not torch.allclose(moved_before, moved_after)


def test_options_are_passed_to_kernels(group):
    spacing = (1.0, 2.0, 1.5)[: group.dim]
    options = {"max_impurity": 0.5, "normalization": "response", "dilation": 2, "spacing": spacing}
    conv = sf.nn.Conv(image(group), features(group), kernel_size=3, kernel_family="purest", **options)
    source = VoxelKernels(group, in_space(group, 3), family="purest", **options)
    expected = KernelBasis(image(group), features(group), source)(conv.weight)
    assert_close(conv.kernel(), expected, rtol=0, atol=0)


def test_conv_with_spacing_is_equivariant_in_physical_space(group):
    """Slices are twice as far apart as pixels; scenes are rotated in physical space."""
    spacing = (2.0, 1.0, 1.0)[: group.dim]
    size, R = (5, 9, 9)[: group.dim], group.random_rotation(torch.Generator().manual_seed(1))
    errors = {}
    for known in (None, list(spacing)):
        options = {"kernel_size": size, "padding": 0, "spacing": known}
        conv = sf.nn.Conv(FieldType.image(group, 1), FieldType(group, (2, 2, 2)), **options)
        scene = blobs(conv.in_type, sigma=3.0)
        errors[known is None] = equivariance_error(conv, R, scene=scene, size=size, spacing=spacing).total
    assert errors[False] < 0.05
    assert errors[True] > 5 * errors[False]


def test_missing_paths_have_no_weights(group):
    conv = sf.nn.Conv(FieldType(group, "1x0"), FieldType(group, "1x6"), kernel_size=3, max_impurity=1.0)
    assert conv.weight.shape == (2, len(conv.basis.paths))
    narrow = sf.nn.Conv(FieldType(group, (1, 1)), FieldType(group, (1, 0, 0, 0, 0, 1)), kernel_size=3)
    assert {path.degree_out for path in narrow.basis.paths} == {0}  # no pure kernel of degree 5 on 3 voxels
    assert not narrow(narrow.in_type.randn(1, 4)).unflatten(1, (2, -1))[:, :, 1:].any()


def test_repr_lists_silent_degrees():
    conv = sf.nn.Conv(image(SO2), FieldType(SO2, (1,) * 8), kernel_size=3)
    assert "2xreal -> 1x0+1x1+1x2+1x3+1x4+1x5+1x6+1x7, kernel_size=(3, 3)" in repr(conv)
    assert "padding='same'" in repr(conv)
    assert ", silent degrees: 3, 4, 5, 6, 7" in repr(conv)
    pieces = conv.out_type.split(conv(conv.in_type.randn(1, 4)))
    assert [bool(piece.any()) for piece in pieces] == [True] * 3 + [False] * 5
    assert "silent" not in repr(sf.nn.Conv(image(SO2), features(SO2), kernel_size=3))


def documented_deviation(conv):
    """Standard deviation per part: ``orders / (peak_p * max_w sum_p gain_p(w) / peak_p)``, halved for complex input."""
    basis, paths = conv.basis, iter(conv.basis.paths)
    blocks = [[next(paths) for _ in range(shape[2])] for shape in basis.weight_shapes]
    variances = []
    for (degree, _), shape, block in zip(basis.pairs, basis.weight_shapes, blocks, strict=True):
        contributions = [
            inp * np.array(path.gain) / max(path.gain)
            for (out, _), (_, inp, _), other in zip(basis.pairs, basis.weight_shapes, blocks, strict=True)
            for path in other
            if out == degree
        ]
        orders = conv.in_type.group.irrep_dim(degree)
        variance = [orders / (max(path.gain) * sum(contributions).max()) for path in block]
        variances.append(np.broadcast_to(variance, shape).reshape(-1))
    return np.sqrt(np.concatenate(variances) / (1 if conv.in_type.real else 2))


@pytest.mark.parametrize("into", [FieldType.image, lambda g, n: FieldType(g, (n, n, n))], ids=["image-in", "features"])
def test_weights_have_documented_variance(group, into):
    conv = sf.nn.Conv(into(group, 6), FieldType(group, (6, 6, 6)), kernel_size=5)
    units = conv.weight.detach().numpy() / documented_deviation(conv)
    assert units.std() == pytest.approx(1, abs=4 / np.sqrt(units.size))
    assert abs(units.mean()) < 4 / np.sqrt(units.size)
    paths = np.concatenate([np.arange(p) for o, i, p in conv.basis.weight_shapes for _ in range(o * i)])
    for path in range(paths.max() + 1):  # and for each path separately
        chosen = units[:, paths == path]
        assert chosen.std() == pytest.approx(1, abs=4 / np.sqrt(chosen.size))


@pytest.mark.slow
@pytest.mark.parametrize("into", [FieldType.image, lambda g, n: FieldType(g, (n, n, n))], ids=["image-in", "features"])
def test_best_passed_frequency_keeps_its_variance(group, into):
    """Purpose of the formula, measured on plane waves: unit variance stays at most unit variance in every degree."""
    out_type = FieldType(group, (3, 3, 3))
    conv = sf.nn.Conv(into(group, 4), out_type, kernel_size=5)
    nodes, share = oracles.directions(group, 12)
    z = VoxelKernels(group, in_space(group, 5))
    points = sf.fields.voxel_coordinates(z.size).flatten(0, -2).numpy()
    curves = []
    for omega in np.linspace(0, np.pi, 9):
        waves = torch.from_numpy(np.exp(1j * omega * points @ nodes.T))
        energy = 0
        for _ in range(6):
            conv.reset_parameters()
            response = conv.kernel().detach().flatten(2).to(waves) @ waves
            energy = energy + (response.abs().square() @ torch.from_numpy(share)).sum(dim=1) / 6
        curves.append([piece.mean().item() for piece in out_type.split(energy[None])])
    for peak in np.max(curves, axis=0):
        assert 0.7 < peak < 1.4


@pytest.mark.slow
@pytest.mark.parametrize("smooth", [False, True], ids=["noise", "blobs"])
def test_ten_layers_neither_explode_nor_vanish(group, smooth):
    field_type, size = (FieldType(SO2, (4,) * 4), 32) if group is SO2 else (FieldType(group, (4, 2, 1)), 14)
    layers = nn.ModuleList(sf.nn.Conv(field_type, field_type, kernel_size=5) for _ in range(10)).float()
    deviations = torch.zeros(10)
    for draw in range(4):
        scene = blobs(field_type, batch=2, sigma=2.0, extent=size / 5, seed=draw, dtype=torch.float32)
        x = scene.sample(size) if smooth else field_type.randn(2, size, dtype=torch.float32)
        x = x / x.std()
        for i, layer in enumerate(layers):
            layer.reset_parameters()
            with torch.no_grad():
                x = layer(x)
            deviations[i] += x.std().log() / 4
    deviations = deviations.exp()
    assert deviations.min() > 0.1
    assert deviations.max() < 5
    assert 0.5 < deviations[9] / deviations[4] < 2
