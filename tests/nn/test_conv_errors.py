"""Invalid convolutions raise the library's own errors, at construction where possible."""

import numpy as np
import pytest

import steerformer as sf
from checks import raises
from nn.layers import features, image
from steerformer import FieldType

pytestmark = pytest.mark.usefixtures("unchecked")


def test_kernel_larger_than_grid_raises(group):
    conv = sf.nn.Conv(features(group), features(group), kernel_size=5, padding=0)
    with pytest.raises(ValueError, match="a window of 5 voxels does not fit into an axis of 4 with padding 0"):
        conv(conv.in_type.randn(1, 4))
    dilated = sf.nn.Conv(features(group), features(group), kernel_size=3, padding=1, dilation=4)
    with pytest.raises(ValueError, match="a window of 9 voxels does not fit into an axis of 5 with padding 1"):
        dilated(dilated.in_type.randn(1, 5))


CENTERING = [  # kernel, stride, padding, size, advice
    (3, 2, "same", 8, r"use a kernel with even width, or an odd grid, or stride 1 and AvgPool"),
    (3, 2, 0, 8, r"use a kernel with even width, or an odd grid"),
    (4, 2, "same", 7, r"use a kernel with odd width, or an even grid"),
    (1, 2, 1, 6, r"use a kernel with even width, or an odd grid"),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "size", "advice"), CENTERING)
def test_off_center_sampling_raises_with_advice_that_works(group, kernel, stride, padding, size, advice):
    options = {"stride": stride, "padding": padding, "max_impurity": 1.0}
    conv = sf.nn.Conv(image(group), image(group), kernel_size=kernel, **options)
    with pytest.raises(ValueError, match=f"with stride {stride} cannot be centered on an axis of {size}.*{advice}"):
        conv(conv.in_type.randn(1, size))
    other = sf.nn.Conv(image(group), image(group), kernel_size=kernel + 1, **options)
    other(other.in_type.randn(1, size))
    conv(conv.in_type.randn(1, size + 1))
    plain = sf.nn.Conv(image(group), image(group), kernel_size=2 * (kernel // 2) + 1)
    sf.nn.AvgPool(image(group), kernel_size=stride)(plain(plain.in_type.randn(1, size)))


def test_even_kernel_with_same_padding_raises_at_construction(group):
    """No grid size can fix it, so the constructor raises."""
    message = r'padding="same" with stride 1 needs windows of odd width, got {} voxels.* kernel with odd width'
    with pytest.raises(ValueError, match=message.format(4)):
        sf.nn.Conv(image(group), image(group), kernel_size=4)
    with pytest.raises(ValueError, match=message.format(2)):
        sf.nn.Gated(features(group), kernel_size=2)
    sf.nn.Conv(image(group), image(group), kernel_size=2, dilation=2, max_impurity=1.0)  # 3 voxels wide


def test_types_without_kernel_raise(group):
    with pytest.raises(
        ValueError, match=r"no kernel of size .* joins 1x0 to 1x5 .* larger kernel, a larger max_impurity"
    ):
        sf.nn.Conv(FieldType(group, "1x0"), FieldType(group, "1x5"), kernel_size=3, max_impurity=1e-6)


BAD_OPTIONS = [
    ({"kernel_size": 0}, "kernel_size is an integer >= 1, or one for each of"),
    ({"kernel_size": -3}, "kernel_size is an integer >= 1"),
    ({"kernel_size": 3.0}, "kernel_size is an integer >= 1"),
    ({"kernel_size": True}, "kernel_size is an integer >= 1"),
    ({"kernel_size": None}, "kernel_size is an integer >= 1"),
    ({"kernel_size": "3"}, "kernel_size is an integer >= 1"),
    ({"kernel_size": (3,)}, r"for each of \d axes, got \(3,\)"),
    ({"kernel_size": (3, 3, 3, 3)}, r"for each of \d axes, got \(3, 3, 3, 3\)"),
    ({"kernel_size": 3, "stride": 0}, "stride is an integer >= 1"),
    ({"kernel_size": 3, "stride": 1.5}, "stride is an integer >= 1"),
    ({"kernel_size": 3, "padding": -1}, "padding is an integer >= 0"),
    ({"kernel_size": 3, "padding": "valid"}, r"padding is .*got 'valid'"),
    ({"kernel_size": 3, "padding": None}, "padding is"),
    ({"kernel_size": 3, "dilation": 0}, "dilation of a kernel is an integer >= 1"),
    ({"kernel_size": 3, "dilation": 1.5}, "dilation of a kernel is an integer >= 1"),
    ({"kernel_size": 3, "kernel_family": "best"}, r"expected one of .*'purest'.*got 'best'"),
    ({"kernel_size": 3, "normalization": "max"}, r"expected one of .*'response'.*got 'max'"),
    ({"kernel_size": 3, "max_impurity": 0.0}, "max_impurity is an impurity, above 0"),
    ({"kernel_size": 3, "max_impurity": float("nan")}, "max_impurity is an impurity, above 0"),
    ({"kernel_size": 3, "spacing": (1.0,)}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "spacing": (1.0, 0.0, 1.0)}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "spacing": "1"}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "max_impurity": None}, "max_impurity is an impurity, above 0 and at most 1, got None"),
    ({"kernel_size": 3, "max_impurity": "small"}, "max_impurity is an impurity, above 0 and at most 1, got 'small'"),
    ({"kernel_size": 3, "spectrum": "gaussian"}, "the spectrum is a Spectrum, .* got 'gaussian'"),
    ({"kernel_size": 3, "dilation": True}, "dilation of a kernel is an integer >= 1"),
    ({"kernel_size": np.float64(3)}, "kernel_size is an integer >= 1"),
    ({"kernel_size": 3, "padding": np.array([1])}, r"for each of \d axes, got array"),
]


def test_invalid_conv_options_raise(group):
    for options, message in BAD_OPTIONS:
        with raises(options, message):
            sf.nn.Conv(features(group), features(group), **options)
