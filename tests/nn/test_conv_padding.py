"""Padding modes of convolutions: torch's, centered, and exact under rotations of the grid."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import steerformer as sf
from checks import raises, without_type_checks
from nn.layers import features, gapped, image, in_space, supported_inputs, worst_error_on
from steerformer import SO2, SO3, FieldType
from steerformer.nn.conv_padding import pad_margins

pytestmark = pytest.mark.usefixtures("float64")
GROUPS = pytest.mark.parametrize("group", [SO2, pytest.param(SO3, marks=pytest.mark.slow)], ids=repr)
MODES = ("reflect", "replicate", "circular")
IMPLEMENTATIONS = ("direct", "spectral", "basis")
CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}
OPTIONS = {
    "same": {"kernel_size": 5},
    "even": {"kernel_size": 4, "padding": 2},
    "dilated": {"kernel_size": 3, "dilation": 2},
    "strided": {"kernel_size": 3, "stride": 2},
    "even-strided": {"kernel_size": 4, "stride": 2},
    "wide": {"kernel_size": 3, "padding": 3},
    "cropped": {"kernel_size": 1, "stride": 3, "padding": 0},
    "cropped-and-padded": {"kernel_size": 2, "stride": 3, "padding": 1},
}
FEW = ("even", "strided", "cropped-and-padded")
"""Options that are tried on volumes, where the code is the same."""
SIZES = {2: (6, (5, 7)), 3: (5, (4, 5, 6))}


def convolutions(group, mode, implementation):
    """Convolutions with all options, each with a supported input of every size."""
    for name, options in OPTIONS.items():
        if group is SO2 or name in FEW:
            options = {"max_impurity": 0.5, "padding_mode": mode, "implementation": implementation, **options}
            conv = sf.nn.Conv(FieldType(group, (2, 1)), FieldType(group, (1, 1)), **options).eval()
            for x in supported_inputs(conv, 1, sizes=SIZES[group.dim]):
                yield f"{name}, {tuple(x.shape[2:])}", conv, x


def oracle(conv, x):
    """Torch's padding by hand, then a convolution without padding."""
    margins = conv._margins(x.shape[2:])
    for axis, margin in enumerate(margins, start=2):
        x = x.narrow(axis, max(-margin, 0), x.shape[axis] + 2 * min(margin, 0))
    x = F.pad(x, [max(margin, 0) for margin in reversed(margins) for _ in range(2)], mode=conv.padding_mode)
    return CONVOLUTIONS[conv.in_type.group.dim](x, conv.kernel(), stride=conv.stride, dilation=conv.dilation)


def derivatives(conv, x, apply):
    x = x.clone().requires_grad_()
    y = apply(x)
    slope = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return y, *torch.autograd.grad(y, (x, conv.weight), slope)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("mode", MODES)
@GROUPS
def test_padding_is_that_of_torch(group, mode, implementation):
    """Values and derivatives, on odd, even and unequal sizes."""
    for name, conv, x in convolutions(group, mode, implementation):
        expected = derivatives(conv, x, lambda x, conv=conv: oracle(conv, x))
        assert_close(derivatives(conv, x, conv), expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("mode", MODES)
@GROUPS
def test_padded_convolutions_are_exact_under_grid_rotations(group, mode, implementation):
    for name, conv, x in convolutions(group, mode, implementation):
        with without_type_checks():
            assert worst_error_on(conv, x) < 1e-10, name


def test_anisotropic_kernels_are_exact_under_the_rotations_that_keep_them(group):
    spacing, size = (3.0, 1.0, 1.0)[: group.dim], (3, 5, 5)[: group.dim]
    for mode in MODES:
        conv = sf.nn.Conv(image(group), features(group), kernel_size=size, spacing=spacing, padding_mode=mode)
        sf.testing.assert_equivariant(conv, size=(4, 6, 6)[: group.dim], spacing=spacing, tolerance=1e-10)


def test_padding_at_one_end_is_not_equivariant(group):
    """A negative control: the same kernel, with all voxels added before the grid."""
    conv = sf.nn.Conv(features(group), FieldType(group, (1, 1)), kernel_size=3, padding=0)

    def one_sided(x):
        return conv(F.pad(x, [2, 0] * group.dim, mode="replicate"))

    with pytest.raises(AssertionError, match="is not equivariant"):
        sf.testing.assert_equivariant(one_sided, in_type=conv.in_type, out_type=conv.out_type, size=5)


def test_circular_convolutions_commute_with_periodic_translations(group):
    conv = sf.nn.Conv(features(group), gapped(group), kernel_size=3, padding_mode="circular")
    x, shift, axes = conv.in_type.randn(1, 6), (2, -1, 3)[: group.dim], list(range(2, 2 + group.dim))
    assert_close(conv(torch.roll(x, shift, axes)), torch.roll(conv(x), shift, axes), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_constant_images_stay_constant_up_to_the_border(group, mode):
    conv = sf.nn.Conv(image(group), FieldType(group, (2,)), kernel_size=5, padding_mode=mode)
    y = conv(torch.ones(1, 2, *in_space(group, 6)))
    assert_close(y, y[(..., *(slice(3, 4),) * group.dim)].expand_as(y))


def test_modes_agree_away_from_the_border(group):
    convs = [sf.nn.Conv(image(group), features(group), kernel_size=3, padding_mode=m) for m in ("zeros", *MODES)]
    x, inner = image(group).randn(1, 6), (..., *(slice(1, -1),) * group.dim)
    for conv in convs:
        conv.load_state_dict(convs[0].state_dict())
    first, *others = (conv(x) for conv in convs)
    for other in others:
        assert_close(other[inner], first[inner])
        assert not torch.allclose(other, first)


def test_single_precision_and_autocast(group):
    for mode in MODES:
        conv = sf.nn.Conv(features(group), features(group), kernel_size=3, padding_mode=mode)
        x = conv.in_type.randn(1, 6)
        exact = conv(x)
        assert_close(conv.float()(x.float()).double(), exact, rtol=0, atol=1e-5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert conv(x.float()).dtype == torch.bfloat16


LIMITS = [  # mode, size, voxels that can be added
    ("reflect", 3, 2),
    ("circular", 2, 2),
]


@pytest.mark.parametrize(("mode", "size", "most"), LIMITS)
def test_grids_that_are_too_small_raise(group, mode, size, most, unchecked):
    conv = sf.nn.Conv(image(group), image(group), kernel_size=7, padding_mode=mode)
    message = f"padding_mode='{mode}' can add {most} voxels on each side of spatial axis 0, which has {size}, but the"
    with pytest.raises(ValueError, match=f"^{message} convolution needs 3; use a smaller kernel"):
        conv(conv.in_type.randn(1, size))
    conv(conv.in_type.randn(1, size + 1))
    sf.nn.Conv(image(group), image(group), kernel_size=7, padding_mode="replicate")(conv.in_type.randn(1, size))


def test_unknown_modes_raise(unchecked):
    for mode in ("constant", "valid", None, 0):
        with raises(mode, r"padding_mode is one of \('zeros', 'reflect', 'replicate', 'circular'\), got"):
            sf.nn.Conv(image(SO2), image(SO2), kernel_size=3, padding_mode=mode)


def test_margins_left_to_the_convolution():
    """Zeros and crops are the convolution's; what is padded is not padded again."""
    x = torch.arange(4.0)[None, None, :, None].expand(1, 1, 4, 5)
    assert pad_margins(x, [1, -1], "zeros") == (x, [1, -1])
    padded, rest = pad_margins(x, [1, -1], "reflect")
    assert padded[0, 0, :, 0].tolist() == [1, 0, 1, 2, 3, 2] and rest == [0, -1]


def test_repr_names_the_mode():
    assert "padding_mode='circular'" in repr(sf.nn.Conv(image(SO2), image(SO2), kernel_size=3, padding_mode="circular"))
    assert "padding_mode" not in repr(sf.nn.Conv(image(SO2), image(SO2), kernel_size=3))
