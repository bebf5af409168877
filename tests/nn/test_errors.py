"""Invalid arguments raise the library's own errors, at construction where possible."""

import numpy as np
import pytest
import torch

import steerformer as sf
from checks import raises
from nn.layers import VARIANTS, features, image, in_space
from steerformer import SO2, SO3, FieldType

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(("group", "make"), VARIANTS)
def test_invalid_input_raises(group, make):
    """Too many channels, no batch axis, integers, complex numbers."""
    layer = make(group)
    x = layer.in_type.randn(2, in_space(group, 6))
    wide = torch.cat([x, x[:, :1]], dim=1)
    with pytest.raises(ValueError) as error:
        layer(wide)
    assert str(layer.in_type.channels) in str(error.value)
    assert str(tuple(wide.shape)) in str(error.value)
    with pytest.raises(ValueError, match="got shape"):
        layer(torch.randn(layer.in_type.channels))
    with pytest.raises(ValueError, match=r"real floating-point numbers, got torch.uint8; convert with .float\(\)"):
        layer(x.to(torch.uint8))
    with pytest.raises(ValueError, match=r"got torch.complex64; torch.cat\(\[x.real, x.imag\], dim=1\)"):
        layer(x.to(torch.complex64))


SPATIAL = {
    "Conv": lambda group: sf.nn.Conv(features(group), features(group), kernel_size=3),
    "Gated": lambda group: sf.nn.Gated(features(group)),
    "AvgPool": lambda group: sf.nn.AvgPool(features(group), kernel_size=2),
    "Resample": lambda group: sf.nn.Resample(features(group), scale=2.0),
}


@pytest.mark.parametrize("make", SPATIAL.values(), ids=SPATIAL)
def test_wrong_number_of_spatial_axes_raises(group, make):
    layer, channels = make(group), features(group).channels
    for axes in (0, 1, 4):
        with raises(axes, rf"{group.dim} spatial axes\), got shape \(2, {channels}"):
            layer(torch.randn(2, channels, *[4] * axes))


def test_image_passed_to_volume_layer_raises():
    conv = sf.nn.Conv(FieldType.image(SO3, 1), FieldType(SO3, (1,)), kernel_size=3)
    with pytest.raises(ValueError, match=r"Conv takes FieldType\(SO3, '1xreal'\).* 3 spatial axes\), got shape"):
        conv(torch.randn(1, 1, 8, 8))


MIXED = {"Conv": {"kernel_size": 3}, "Linear": {}, "TensorProduct": {}}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_groups_raise(name):
    with pytest.raises(ValueError, match=r"one group, got FieldType\(SO2.*FieldType\(SO3"):
        getattr(sf.nn, name)(features(SO2), features(SO3), **MIXED[name])


def test_tensor_product_without_coupling_raises(group):
    with pytest.raises(ValueError, match=r"no two degrees of 2x0 couple to degree 1; leave it out of 1x0[+]1x1"):
        sf.nn.TensorProduct(FieldType(group, "2x0"), FieldType(group, (1, 1)))
    with pytest.raises(ValueError, match="no two degrees of 2xreal couple to degree 1"):
        sf.nn.TensorProduct(FieldType.image(group, 2), FieldType(group, (1, 1)))


def test_invalid_copies_of_tensor_product_raise(group):
    for copies in (-1, 0, 1.5, "2", True):
        with raises(copies, "copies is an integer >= 1, got"):
            sf.nn.TensorProduct(features(group), features(group), copies=copies)


def test_invalid_oversampling_raises(group):
    for oversampling in (0, 1, -2, 2.5, None):
        with raises(oversampling, "oversampling is an integer >= 2, got"):
            sf.nn.FourierReLU(features(group), oversampling=oversampling)


def test_linear_without_common_degree_raises(group):
    with pytest.raises(ValueError, match="copies of equal degree, but 1x0 and 1x1 share none"):
        sf.nn.Linear(FieldType(group, "1x0"), FieldType(group, "1x1"))


def test_invalid_dropout_probability_raises(group):
    for p in (-0.1, 1.0, 1.5, float("nan"), "0.5", None):
        with raises(p, "probability of dropout is at least 0 and below 1, got"):
            sf.nn.FieldDropout(features(group), p=p)


def test_invalid_resample_options_raise(group):
    x = features(group).randn(1, 4)
    with pytest.raises(ValueError, match=r"a scale or a size, got both \(2.0, 8\)"):
        sf.nn.Resample(features(group), scale=2.0, size=8)
    with pytest.raises(ValueError, match="neither scale nor size; pass a size in the call"):
        sf.nn.Resample(features(group))(x)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with raises(scale, "scale of Resample is a number above 0"):
            sf.nn.Resample(features(group), scale=scale)
    for scale in ((2, 2), "2"):
        with raises(scale, "scale of Resample is a number above 0 and finite, for all axes, got"):
            sf.nn.Resample(features(group), scale=scale)
    for size in (0, -2, (4,), (4, 4, 4, 4), 2.5, (4.5,) * group.dim):
        with raises(size, "the size of Resample is an integer >= 1"):
            sf.nn.Resample(features(group), size=size)
        with raises(size, "the size of Resample is an integer >= 1"):
            sf.nn.Resample(features(group))(x, size)


def test_pool_larger_than_grid_raises(group):
    pool = sf.nn.AvgPool(features(group), kernel_size=4)
    with pytest.raises(ValueError, match="a window of 4 voxels does not fit into spatial axis 1, which has 3"):
        pool(pool.in_type.randn(1, (5, 3, 5)[: group.dim]))
    soft = sf.nn.AvgPool(features(group), kernel_size=6, antialiased=True)
    with pytest.raises(ValueError, match="does not fit into spatial axis 0"):
        soft(soft.in_type.randn(1, 4))


def test_invalid_pool_options_raise(group):
    for options in ({"kernel_size": 0}, {"kernel_size": 2, "stride": 0}, {"kernel_size": (2,)}):
        with raises(options, r"(kernel_size|stride) is an integer >= 1"):
            sf.nn.AvgPool(features(group), **options)


def test_grid_without_voxels_raises(group):
    for size in ((0, 4, 4), (4, 0, 4)):
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


def test_channel_count_instead_of_field_type_raises():
    for name, options in ONE_TYPE.items():
        with raises(name, rf"{name} needs field types, got 8; write FieldType.* FieldType.image", TypeError):
            getattr(sf.nn, name)(8, **options)
    for name, options in MIXED.items():
        for types in ((3, 8), (3, features(SO2)), (features(SO2), 8)):
            with raises((name, types), rf"{name} needs field types, got (3|8);", TypeError):
                getattr(sf.nn, name)(*types, **options)


@pytest.mark.parametrize("name", MIXED)
def test_dtype_mismatch_raises_unless_autocast(group, name):
    layer = getattr(sf.nn, name)(features(group), features(group), **MIXED[name])
    x = features(group).randn(1, 4)
    message = r"(Conv|Linear) has weights of torch.float32, got a field of torch.float64; convert one of them"
    with pytest.raises(ValueError, match=message):
        layer(x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x.bfloat16())


def test_antialiased_pool_with_other_stride_raises(group):
    with pytest.raises(ValueError, match=r"got kernel_size \(3, 3.* and stride \(2, 2.*; leave stride out"):
        sf.nn.AvgPool(features(group), kernel_size=3, stride=2, antialiased=True)
    sf.nn.AvgPool(features(group), kernel_size=2, stride=2, antialiased=True)


def test_invalid_blur_raises(group):
    for blur in (0, -1, 0.001, 1e9, float("nan"), float("inf"), "wide"):
        with raises(blur, r"blur of AvgPool is a number from 0\.1 to 4, in strides, got"):
            sf.nn.AvgPool(features(group), kernel_size=2, antialiased=True, blur=blur)


def test_invalid_eps_raises(group):
    for eps in (0, -1e-6, float("nan"), float("inf"), None):
        for norm in (sf.nn.LayerNorm, sf.nn.BatchNorm):
            with raises((norm, eps), "eps is a finite number above 0, to avoid division by zero, got"):
                norm(features(group), eps=eps)


def test_invalid_momentum_raises(group):
    for momentum in (None, 2.0, -0.1, float("nan")):
        with raises(momentum, "momentum of BatchNorm is a number from 0 to 1, got"):
            sf.nn.BatchNorm(features(group), momentum=momentum)


def test_invalid_bias_raises(group):
    for bias in (float("nan"), float("inf"), None, "0"):
        with raises(bias, "initial bias of NormReLU is a finite number, got"):
            sf.nn.NormReLU(features(group), bias=bias)


def test_numpy_numbers_are_accepted(group):
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


def test_scalar_spacing_applies_to_all_axes(group):
    for spacing in (2.0, 2, np.float32(2), torch.tensor([2.0] * group.dim)):
        conv = sf.nn.Conv(image(group), features(group), kernel_size=3, spacing=spacing)
        assert conv.basis.source.spacing == (2.0,) * group.dim
