"""Grouped convolutions are separate convolutions of the groups, with their share of the arithmetic."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import steerformer as sf
from checks import raises
from nn.layers import even, image, worst_error
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("float64")
IMPLEMENTATIONS = ("direct", "spectral", "basis")
OPTIONS = {
    "same": {"kernel_size": 3},
    "strided": {"kernel_size": 4, "stride": 2, "padding": 1},
    "reflect": {"kernel_size": 3, "padding_mode": "reflect", "dilation": 2},
    "single-output": {"kernel_size": 6, "padding": 0},
}


def out_type(group):
    return FieldType(group, (2, 0, 4))


def shares(field_type, groups):
    """The copies of each group, for :meth:`FieldType.select`."""
    counts = {degree: field_type.multiplicity(degree) // groups for degree in field_type.degrees}
    return [{d: slice(i * n, (i + 1) * n) for d, n in counts.items()} for i in range(groups)]


def separate_convolutions(conv, x, **options):
    """The definition: one convolution for each group of copies, with copied weights, and the results concatenated."""
    results, types = [], []
    for i, (into, out) in enumerate(zip(*(shares(t, conv.groups) for t in (conv.in_type, conv.out_type)), strict=True)):
        alone = sf.nn.Conv(conv.in_type.subtype(into), conv.out_type.subtype(out), **options)
        alone.weight = torch.nn.Parameter(conv.weight.detach().chunk(conv.groups, dim=1)[i])
        results.append(alone(conv.in_type.select(x, into)))
        types.append(alone.out_type)
    return sf.concat(results, types)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("kind", ["features", "image-in", "image-out"])
def test_groups_are_separate_convolutions(group, kind, implementation):
    into = image(group) if kind == "image-in" else even(group)
    out = image(group) if kind == "image-out" else out_type(group)
    for name, options in OPTIONS.items():
        options = {**options, "max_impurity": 0.5, "implementation": implementation}
        conv = sf.nn.Conv(into, out, groups=2, **options)
        x = into.randn(2, 6)
        for mode in (True, False):
            with torch.no_grad():
                found = conv.train(mode)(x)
            assert_close(found, separate_convolutions(conv, x, **options), msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_grouped_convolutions_are_exact_under_grid_rotations(group, implementation):
    conv = sf.nn.Conv(even(group), out_type(group), kernel_size=3, groups=2, implementation=implementation).eval()
    for size in (4, (3, 5, 4)):
        assert worst_error(conv, size) < 1e-10


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_are_those_of_the_dense_kernel(group, implementation):
    conv = sf.nn.Conv(even(group), out_type(group), kernel_size=3, groups=2, implementation=implementation)
    x = conv.in_type.randn(2, 5).requires_grad_()
    slope = torch.randn_like(conv(x))
    plain = {2: torch.conv2d, 3: torch.conv3d}[group.dim]
    expected = torch.autograd.grad(plain(x, conv.kernel(), padding=1), (x, conv.weight), slope)
    assert_close(torch.autograd.grad(conv(x), (x, conv.weight), slope), expected)


def test_dense_kernel_is_zero_between_groups(group):
    conv = sf.nn.Conv(even(group), even(group), kernel_size=3, groups=2)
    kernel = conv.kernel()
    for i, into in enumerate(shares(conv.in_type, 2)):
        x = torch.zeros_like(conv.in_type.randn(1, 4))
        pieces = dict(zip(conv.in_type.degrees, conv.in_type.split(x), strict=True))
        for degree, copies in into.items():
            pieces[degree][:, :, :, copies] = 1
        other = shares(conv.out_type, 2)[1 - i]
        assert not conv.out_type.select(conv(x), other).any()
    assert (kernel == 0).double().mean() >= 0.5


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_have_their_share_of_weights_and_arithmetic(group, groups):
    """As torch counts it, both with three real products for a complex one."""
    field_type = FieldType(group, (16, 16))
    convs = [sf.nn.Conv(field_type, field_type, kernel_size=3, groups=n, implementation="direct") for n in (1, groups)]
    x, work = field_type.randn(1, 6), []
    for conv in convs:
        with FlopCounterMode(display=False) as counter:
            conv(x)
        counts = counter.get_flop_counts()["Global"]
        work.append(sum(n for operation, n in counts.items() if "conv" in str(operation)))
    whole, part = (conv.weight.numel() for conv in convs)
    assert groups * part == whole
    assert work[1] * groups == work[0] > 0


def test_each_copy_by_itself(group):
    """As many groups as copies, a depthwise convolution."""
    field_type = FieldType(group, (3, 3))
    conv = sf.nn.Conv(field_type, field_type, kernel_size=3, groups=3)
    x = field_type.randn(1, 5)
    assert_close(conv(x), separate_convolutions(conv, x, kernel_size=3))


def test_initial_variance_is_that_of_one_group(group):
    many = FieldType(group, (32, 32))
    powers = [
        sf.nn.Conv(many, many, kernel_size=3, groups=groups)(many.randn(1, 8)).square().mean() for groups in (1, 8)
    ]
    assert powers[1].item() == pytest.approx(powers[0].item(), rel=0.3)


def test_one_group_is_the_default(group):
    torch.manual_seed(3)
    plain = sf.nn.Conv(even(group), even(group), kernel_size=3)
    torch.manual_seed(3)
    grouped = sf.nn.Conv(even(group), even(group), kernel_size=3, groups=1)
    assert torch.equal(plain.weight, grouped.weight)


def test_groups_that_do_not_divide_raise(group, unchecked):
    uneven = FieldType(group, (4, 3))
    message = r"groups must divide the multiplicity of every degree, got groups=2 for 3 copies of degree 1 in FieldType"
    for types in ((uneven, even(group)), (even(group), uneven)):
        with pytest.raises(ValueError, match=message):
            sf.nn.Conv(*types, kernel_size=3, groups=2)
    for groups in (0, -1, 1.5, "2", True, None):
        with raises(groups, "groups is an integer >= 1, got"):
            sf.nn.Conv(even(group), even(group), kernel_size=3, groups=groups)


def test_repr_and_parameters_per_degree():
    conv = sf.nn.Conv(even(SO3), even(SO3), kernel_size=3, groups=2)
    assert ", groups=2" in repr(conv) and "groups" not in repr(sf.nn.Conv(even(SO2), even(SO2), kernel_size=3))
    assert sum(sf.models.parameters_per_degree(conv).values()) == conv.weight.numel()
