"""Expected equivariance error of convolutions at initialization against measurements and the definition."""

import math

import numpy as np
import pytest
import torch

import steerformer as sf
from checks import without_type_checks
from nn.layers import features, image, many
from steerformer import SO2, SO3, FieldType
from steerformer.kernels import Spectrum
from steerformer.testing import blobs, equivariance_error

pytestmark = pytest.mark.usefixtures("float64")
FAMILIES = {"fitted": {}, "purest": {"max_impurity": 1e-3}, "sampled": {"max_impurity": 1.0}}


def measured_errors(conv, draws, sigma=1.0):
    """Root mean square over draws of weights and scenes with the spectrum of smoothed noise, and random rotations."""
    generator, errors = torch.Generator().manual_seed(0), []
    for draw in range(draws):
        conv.reset_parameters()
        # blobs far beyond the kernel, many to a voxel: white noise smoothed by a Gaussian, as the spectrum is
        scene = blobs(conv.in_type, batch=12, count=120, sigma=sigma, extent=4.0, seed=draw)
        R = conv.in_type.group.random_rotation(generator)
        with without_type_checks():
            errors.append(equivariance_error(conv, R, scene=scene, size=conv.kernel_size).per_degree)
    return {degree: math.sqrt(np.mean([error[degree] ** 2 for error in errors])) for degree in errors[0]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("into", [image, features])
@pytest.mark.parametrize("group", [SO2, pytest.param(SO3, marks=pytest.mark.slow)], ids=repr)
def test_expected_error_is_that_of_random_weights_rotations_and_signals(group, into, family):
    options = {"kernel_size": 5, "padding": 0, "kernel_family": family, **FAMILIES[family]}
    conv = sf.nn.Conv(into(group), FieldType(group, (2, 2, 2)), **options)
    measured = measured_errors(conv, draws=40 if group is SO2 else 16)
    assert conv.expected_error.keys() == measured.keys()
    for degree, expected in conv.expected_error.items():
        assert expected / 1.5 < measured[degree] < 1.5 * expected, degree


def test_expected_error_refers_to_the_spectrum(group):
    """Smoother signals have other errors, larger or smaller; each is measured on signals of its spectrum."""
    options = {"kernel_size": 3, "padding": 0, "kernel_family": "sampled", "max_impurity": 1.0}
    errors = {}
    for sigma in (1.0, 2.0):
        conv = sf.nn.Conv(image(group), features(group), spectrum=Spectrum(sigma=sigma), **options)
        errors[sigma] = conv.expected_error
        measured = measured_errors(conv, draws=16, sigma=sigma)
        for degree, expected in errors[sigma].items():
            assert expected / 2 < measured[degree] < 2 * expected, (sigma, degree)
    assert errors[2.0] != pytest.approx(errors[1.0], rel=0.3)


def test_error_of_a_single_path_is_that_of_its_purity(group):
    """Multiplicities, normalization and stride change nothing."""
    (path,) = sf.nn.Conv(FieldType.image(group, 1), FieldType(group, "1x2"), kernel_size=3).basis.paths
    for copies, options in ((1, {}), (4, {"stride": 3}), (2, {"normalization": "response"}), (2, {"groups": 2})):
        conv = sf.nn.Conv(FieldType.image(group, copies), FieldType(group, {2: copies}), kernel_size=3, **options)
        assert conv.expected_error == pytest.approx({2: math.sqrt(2 * (1 - path.purity))})


def test_largest_impurity_bounds_the_expected_error(group):
    for max_impurity in (1e-3, 1e-2, 0.3):
        conv = sf.nn.Conv(features(group), features(group), kernel_size=5, max_impurity=max_impurity)
        assert 0 < max(conv.expected_error.values()) <= math.sqrt(2 * max_impurity)


def test_repr_states_expected_errors_of_reached_degrees(group):
    conv = sf.nn.Conv(image(group), many(group), kernel_size=3)
    assert set(conv.expected_error) < set(conv.out_type.degrees)
    listed = ", ".join(f"{error:.1e} (degree {degree})" for degree, error in conv.expected_error.items())
    assert f"relative error expected at arbitrary angles, at initialization: {listed}, silent degrees: " in repr(conv)
    with torch.device("meta"):
        assert repr(sf.nn.Conv(image(group), many(group), kernel_size=3)) == repr(conv)


def test_expected_error_does_not_depend_on_trained_weights(group):
    conv = sf.nn.Conv(image(group), features(group), kernel_size=3)
    before = conv.expected_error
    with torch.no_grad():
        conv.weight.zero_()
    assert conv.expected_error == before
