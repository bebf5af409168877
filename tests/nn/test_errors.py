"""Mistakes are named in our own words, at construction where that is possible."""

import numpy as np
import pytest
import torch

import steerformer as sf
from nn.layers import LAYERS, features, image, in_space
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("make", LAYERS)
def test_every_layer_says_which_channels_it_needs(group, make):
    layer = make(group)
    x = torch.randn(2, layer.in_type.channels + 1, *in_space(group, 6))
    with pytest.raises(ValueError) as error:
        layer(x)
    assert str(layer.in_type.channels) in str(error.value)
    assert str(tuple(x.shape)) in str(error.value)


@pytest.mark.parametrize("make", LAYERS)
def test_no_layer_takes_a_lone_vector(group, make):
    layer = make(group)
    with pytest.raises(ValueError, match="got shape"):
        layer(torch.randn(layer.in_type.channels))


SPATIAL = {
    "Conv": lambda group: sf.nn.Conv(features(group), features(group), kernel_size=3),
    "Gated": lambda group: sf.nn.Gated(features(group)),
    "AvgPool": lambda group: sf.nn.AvgPool(features(group), kernel_size=2),
    "Resample": lambda group: sf.nn.Resample(features(group), scale=2.0),
}


@pytest.mark.parametrize("make", SPATIAL.values(), ids=SPATIAL)
@pytest.mark.parametrize("axes", [0, 1, 4])
def test_layers_of_space_say_how_many_axes_it_has(group, make, axes):
    x = torch.randn(2, features(group).channels, *[4] * axes)
    with pytest.raises(ValueError, match=rf"{group.dim} axes of space\), got shape \(2, {features(group).channels}"):
        make(group)(x)


def test_an_image_is_no_volume():
    conv = sf.nn.Conv(FieldType.image(SO3, 1), FieldType(SO3, (1,)), kernel_size=3)
    with pytest.raises(ValueError, match=r"Conv takes FieldType\(SO3, '1xreal'\).* 3 axes of space\), got shape"):
        conv(torch.randn(1, 1, 8, 8))


MIXED = {"Conv": {"kernel_size": 3}, "Linear": {}, "TensorProduct": {}}


@pytest.mark.parametrize("name", MIXED)
def test_groups_do_not_mix(name):
    with pytest.raises(ValueError, match=r"one group, got FieldType\(SO2.*FieldType\(SO3"):
        getattr(sf.nn, name)(features(SO2), features(SO3), **MIXED[name])


def test_a_kernel_must_fit_into_the_grid(group):
    conv = sf.nn.Conv(features(group), features(group), kernel_size=5, padding=0)
    with pytest.raises(ValueError, match="a window of 5 voxels does not fit into an axis of 4 with padding 0"):
        conv(conv.in_type.randn(1, 4))
    dilated = sf.nn.Conv(features(group), features(group), kernel_size=3, padding=1, dilation=4)
    with pytest.raises(ValueError, match="a window of 9 voxels does not fit into an axis of 5 with padding 1"):
        dilated(dilated.in_type.randn(1, 5))


CENTERING = [  # kernel, stride, padding, size, advice
    (3, 2, "same", 8, r"Take a kernel with even width, or an odd grid, or stride 1 and AvgPool"),
    (3, 2, 0, 8, r"Take a kernel with even width, or an odd grid"),
    (4, 2, "same", 7, r"Take a kernel with odd width, or an even grid"),
    (1, 2, 1, 6, r"Take a kernel with even width, or an odd grid"),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "size", "advice"), CENTERING)
def test_where_samples_cannot_be_centered_it_says_what_to_change(group, kernel, stride, padding, size, advice):
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "tolerance": 1.0}
    conv = sf.nn.Conv(image(group), image(group), **options)
    with pytest.raises(ValueError, match=f"with stride {stride} cannot lie centered on an axis of {size}.*{advice}"):
        conv(conv.in_type.randn(1, size))


@pytest.mark.parametrize(("kernel", "stride", "padding", "size", "advice"), CENTERING)
def test_the_advice_is_good(group, kernel, stride, padding, size, advice):
    other = sf.nn.Conv(
        image(group), image(group), kernel_size=kernel + 1, stride=stride, padding=padding, tolerance=1.0
    )
    other(other.in_type.randn(1, size))
    same = sf.nn.Conv(image(group), image(group), kernel_size=kernel, stride=stride, padding=padding, tolerance=1.0)
    same(same.in_type.randn(1, size + 1))
    plain = sf.nn.Conv(image(group), image(group), kernel_size=2 * (kernel // 2) + 1)
    sf.nn.AvgPool(image(group), kernel_size=stride)(plain(plain.in_type.randn(1, size)))


def test_an_even_kernel_cannot_keep_the_size(group):
    """Only another kernel helps, whatever the grid: so it is said at once."""
    words = r'padding="same" with stride 1 needs windows of odd width, got {} voxels.* kernel with odd width'
    with pytest.raises(ValueError, match=words.format(4)):
        sf.nn.Conv(image(group), image(group), kernel_size=4)
    with pytest.raises(ValueError, match=words.format(2)):
        sf.nn.Gated(features(group), kernel_size=2)
    sf.nn.Conv(image(group), image(group), kernel_size=2, dilation=2, tolerance=1.0)  # 3 voxels wide


def test_types_that_no_kernel_joins(group):
    with pytest.raises(ValueError, match=r"no kernel of size .* joins 1x0 to 1x5 .* larger kernel, a larger tolerance"):
        sf.nn.Conv(FieldType(group, "1x0"), FieldType(group, "1x5"), kernel_size=3, tolerance=1e-6)


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
    ({"kernel_size": 3, "profiles": "best"}, r"expected one of .*'purest'.*got 'best'"),
    ({"kernel_size": 3, "normalization": "max"}, r"expected one of .*'response'.*got 'max'"),
    ({"kernel_size": 3, "tolerance": 0.0}, "tolerance is an impurity, above 0"),
    ({"kernel_size": 3, "tolerance": float("nan")}, "tolerance is an impurity, above 0"),
    ({"kernel_size": 3, "spacing": (1.0,)}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "spacing": (1.0, 0.0, 1.0)}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "spacing": "1"}, "spacing of SO. is . lengths > 0"),
    ({"kernel_size": 3, "tolerance": None}, "tolerance is an impurity, above 0 and at most 1, got None"),
    ({"kernel_size": 3, "tolerance": "small"}, "tolerance is an impurity, above 0 and at most 1, got 'small'"),
    ({"kernel_size": 3, "spectrum": "gaussian"}, "the spectrum is a Spectrum, .* got 'gaussian'"),
    ({"kernel_size": 3, "dilation": True}, "dilation of a kernel is an integer >= 1"),
    ({"kernel_size": np.float64(3)}, "kernel_size is an integer >= 1"),
    ({"kernel_size": 3, "padding": np.array([1])}, r"for each of \d axes, got array"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:50])
def test_bad_options_of_a_convolution_are_named(group, options, words):
    with pytest.raises(ValueError, match=words):
        sf.nn.Conv(features(group), features(group), **options)


def test_real_fields_are_not_multiplied_nor_seen_as_functions_of_direction(group):
    with pytest.raises(
        ValueError, match=r"TensorProduct takes and gives complex fields, got FieldType\(SO., '2xreal'\)"
    ):
        sf.nn.TensorProduct(image(group), features(group))
    with pytest.raises(ValueError, match="TensorProduct takes and gives complex fields"):
        sf.nn.TensorProduct(features(group), image(group))
    with pytest.raises(ValueError, match=r"FourierReLU takes complex fields.* torch's ReLU"):
        sf.nn.FourierReLU(image(group))


def test_products_that_do_not_exist(group):
    with pytest.raises(ValueError, match=r"no two degrees of 2x0 couple to degree 1; leave it out of 1x0[+]1x1"):
        sf.nn.TensorProduct(FieldType(group, "2x0"), FieldType(group, (1, 1)))


@pytest.mark.parametrize("copies", [-1, 0, 1.5, "2", True])
def test_copies_of_a_product_are_a_number(group, copies):
    with pytest.raises(ValueError, match="copies of"):
        sf.nn.TensorProduct(features(group), features(group), copies=copies)


@pytest.mark.parametrize("oversampling", [0, 1, -2, 2.5, None])
def test_oversampling_is_a_number_from_2_on(group, oversampling):
    with pytest.raises(ValueError, match="oversampling is an integer >= 2, got"):
        sf.nn.FourierReLU(features(group), oversampling=oversampling)


def test_linear_needs_a_degree_in_common(group):
    with pytest.raises(ValueError, match="copies of equal degree, but 1x0 and 1x1 share none"):
        sf.nn.Linear(FieldType(group, "1x0"), FieldType(group, "1x1"))


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan"), "0.5", None])
def test_dropout_has_a_probability(group, p):
    with pytest.raises(ValueError, match="probability of dropout is at least 0 and below 1, got"):
        sf.nn.FieldDropout(features(group), p=p)


def test_resampling_takes_a_scale_or_a_size(group):
    x = features(group).randn(1, 4)
    with pytest.raises(ValueError, match=r"a scale or a size, got both \(2.0, 8\)"):
        sf.nn.Resample(features(group), scale=2.0, size=8)
    with pytest.raises(ValueError, match="neither scale nor size; pass a size in the call"):
        sf.nn.Resample(features(group))(x)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="scale of Resample is a number above 0"):
            sf.nn.Resample(features(group), scale=scale)
    for scale in ((2, 2), "2"):
        with pytest.raises(ValueError, match="scale of Resample is a number above 0 and finite, for all axes, got"):
            sf.nn.Resample(features(group), scale=scale)
    for size in (0, -2, (4,), (4, 4, 4, 4), 2.5, (4.5,) * group.dim):
        with pytest.raises(ValueError, match="the size of Resample is an integer >= 1"):
            sf.nn.Resample(features(group), size=size)
        with pytest.raises(ValueError, match="the size of Resample is an integer >= 1"):
            sf.nn.Resample(features(group))(x, size)


def test_a_pool_must_fit_into_the_grid(group):
    pool = sf.nn.AvgPool(features(group), kernel_size=4)
    with pytest.raises(ValueError, match="a window of 4 voxels does not fit into axis 1 of space, which has 3"):
        pool(pool.in_type.randn(1, (5, 3, 5)[: group.dim]))
    soft = sf.nn.AvgPool(features(group), kernel_size=6, antialiased=True)
    with pytest.raises(ValueError, match="does not fit into axis 0 of space"):
        soft(soft.in_type.randn(1, 4))


@pytest.mark.parametrize(
    "options", [{"kernel_size": 0}, {"kernel_size": 2, "stride": 0}, {"kernel_size": (2,)}], ids=str
)
def test_bad_options_of_a_pool_are_named(group, options):
    with pytest.raises(ValueError, match=r"(kernel_size|stride) is an integer >= 1"):
        sf.nn.AvgPool(features(group), **options)


@pytest.mark.parametrize("size", [(0, 4, 4), (4, 0, 4)])
def test_a_grid_without_voxels_is_no_grid(group, size):
    for make in SPATIAL.values():
        with pytest.raises(ValueError):
            make(group)(features(group).randn(1, size[: group.dim]))


ONE_TYPE = {
    "NormReLU": {},
    "Gated": {},
    "FourierReLU": {},
    "LayerNorm": {},
    "BatchNorm": {},
    "AvgPool": {"kernel_size": 2},
    "Resample": {},
    "Invariants": {},
    "FieldDropout": {},
}


@pytest.mark.parametrize("name", ONE_TYPE)
def test_a_number_of_channels_is_no_field_type(name):
    with pytest.raises(TypeError, match=rf"{name} needs field types, got 8; write FieldType.* FieldType.image"):
        getattr(sf.nn, name)(8, **ONE_TYPE[name])


@pytest.mark.parametrize("name", MIXED)
def test_neither_side_is_a_number_of_channels(name):
    for types in ((3, 8), (3, features(SO2)), (features(SO2), 8)):
        with pytest.raises(TypeError, match=rf"{name} needs field types, got (3|8);"):
            getattr(sf.nn, name)(*types, **MIXED[name])


@pytest.mark.parametrize("make", LAYERS)
def test_no_layer_takes_integers_or_complex_numbers(group, make):
    layer = make(group)
    x = layer.in_type.randn(2, in_space(group, 6))
    with pytest.raises(ValueError, match=r"real floating-point numbers, got torch.uint8; convert with .float\(\)"):
        layer(x.to(torch.uint8))
    with pytest.raises(ValueError, match=r"got torch.complex64; torch.cat\(\[x.real, x.imag\], dim=1\)"):
        layer(x.to(torch.complex64))


@pytest.mark.parametrize("name", MIXED)
def test_weights_and_fields_have_one_precision(group, name):
    layer = getattr(sf.nn, name)(features(group), features(group), **MIXED[name])
    x = features(group).randn(1, 4)
    words = r"(Conv|Linear) has weights of torch.float32, got a field of torch.float64; convert one of them"
    with pytest.raises(ValueError, match=words):
        layer(x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x.bfloat16())


def test_antialiased_windows_have_no_width_of_their_own(group):
    with pytest.raises(ValueError, match=r"leave stride out, .* got kernel_size \(3, 3.* and stride \(2, 2"):
        sf.nn.AvgPool(features(group), kernel_size=3, stride=2, antialiased=True)
    sf.nn.AvgPool(features(group), kernel_size=2, stride=2, antialiased=True)


@pytest.mark.parametrize("blur", [0, -1, 0.001, 1e9, float("nan"), float("inf"), "wide"])
def test_antialiased_windows_need_a_blur(group, blur):
    with pytest.raises(ValueError, match=r"blur of AvgPool is a number from 0\.1 to 4, in strides, got"):
        sf.nn.AvgPool(features(group), kernel_size=2, antialiased=True, blur=blur)


@pytest.mark.parametrize("eps", [0, -1e-6, float("nan"), float("inf"), None])
def test_norms_need_an_eps(group, eps):
    for norm in (sf.nn.LayerNorm, sf.nn.BatchNorm):
        with pytest.raises(ValueError, match="eps keeps norms from dividing by zero: a number above 0, got"):
            norm(features(group), eps=eps)


@pytest.mark.parametrize("momentum", [None, 2.0, -0.1, float("nan")])
def test_momentum_is_a_share(group, momentum):
    with pytest.raises(ValueError, match="momentum of BatchNorm is a number from 0 to 1, got"):
        sf.nn.BatchNorm(features(group), momentum=momentum)


@pytest.mark.parametrize("bias", [float("nan"), float("inf"), None, "0"])
def test_a_bias_is_finite(group, bias):
    with pytest.raises(ValueError, match="initial bias of NormReLU is a finite number, got"):
        sf.nn.NormReLU(features(group), bias=bias)


def test_numbers_of_numpy_are_numbers(group):
    two, three = np.int64(2), np.int32(3)
    conv = sf.nn.Conv(image(group), image(group), kernel_size=three, padding=np.array([2] * group.dim), dilation=two)
    assert type(conv.dilation) is int
    assert all(type(n) is int for n in (*conv.kernel_size, *conv.padding))
    conv(image(group).randn(1, 6))
    sf.nn.TensorProduct(features(group), features(group), copies=two)(features(group).randn(1))
    sf.nn.FourierReLU(features(group), oversampling=three)(features(group).randn(1))
    sf.nn.AvgPool(features(group), kernel_size=two)(features(group).randn(1, 4))
    sf.nn.Resample(features(group), size=np.array([3] * group.dim))(features(group).randn(1, 4))
    sf.nn.FieldDropout(features(group), p=np.float32(0.5))(features(group).randn(1, 4))


def test_one_spacing_serves_all_axes(group):
    for spacing in (2.0, 2, np.float32(2), torch.tensor([2.0] * group.dim)):
        conv = sf.nn.Conv(image(group), features(group), kernel_size=3, spacing=spacing)
        assert conv.basis.source.spacing == (2.0,) * group.dim
