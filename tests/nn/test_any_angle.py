"""Two convolutions turned by any angle: bounded errors on smooth analytic scenes, in all and degree by degree."""

import math
from functools import cache

import pytest
import torch
from torch import nn

import steerformer as sf
from steerformer import SO2, SO3, FieldType
from steerformer.testing import blobs, equivariance_error

pytestmark = pytest.mark.usefixtures("float64")
DRAWS = 8
CASES = [(SO2, 4), (SO2, 8), (SO3, 4)]
FAMILIES = {"fitted": 1e-2, "purest": 1e-3, "sampled": 1.0}  # and their tolerances
LIMITS = {"fitted": (2.5e-2, 4e-2), "purest": (5e-3, 1e-2)}  # at small and at large angles


def two_convolutions(group, degrees, family, *, weights="normal", nonlinear=False):
    """An image through two 5-wide convolutions with unit-norm kernels; on 9 voxels one output is left."""
    image, features = FieldType.image(group, 1), FieldType(group, (4,) * degrees)
    options = {"kernel_size": 5, "padding": 0, "profiles": family, "tolerance": FAMILIES[family]}
    convolutions = sf.nn.Conv(image, features, **options), sf.nn.Conv(features, features, **options)
    if weights == "normal":
        for convolution in convolutions:
            nn.init.normal_(convolution.weight)
    between = [sf.nn.NormReLU(features, bias=-0.1)] if nonlinear else []
    return nn.Sequential(convolutions[0], *between, convolutions[1])


def rotation(group, angle, draw):
    """In space about any axis, and in place of 45 degrees any rotation at all."""
    if group is SO2:
        return SO2.rotation(math.radians(angle))
    generator = torch.Generator().manual_seed(draw)
    if angle == 45:
        return SO3.random_rotation(generator)
    return SO3.rotation(math.radians(angle), tuple(torch.randn(3, generator=generator).tolist()))


@cache
def mean_error(group, degrees, family, angle, weights="normal", nonlinear=False):
    """Total error, and error and energy of each degree, averaged over draws of weights and scenes."""
    errors = []
    for draw in range(DRAWS):
        torch.manual_seed(draw)
        net = two_convolutions(group, degrees, family, weights=weights, nonlinear=nonlinear)
        batch, sigma = (64, 2.0) if group is SO2 else (16, 1.5)
        scene = blobs(FieldType.image(group, 1), batch=batch, sigma=sigma, seed=draw)
        errors.append(equivariance_error(net, rotation(group, angle, draw), scene=scene, size=9))
    mean = lambda values: sum(values) / DRAWS  # noqa: E731
    per_degree = {
        degree: (mean([e.per_degree[degree] for e in errors]), mean([e.energy[degree] for e in errors]))
        for degree in range(degrees)
    }
    return mean([e.total for e in errors]), per_degree


@pytest.mark.parametrize("nonlinear", [False, True], ids=["linear", "NormReLU"])
@pytest.mark.parametrize("family", LIMITS)
@pytest.mark.parametrize(("group", "degrees"), CASES)
def test_two_convolutions_err_by_little(group, degrees, family, nonlinear):
    for angle, limit in zip((17, 45), LIMITS[family], strict=True):
        total, _ = mean_error(group, degrees, family, angle, nonlinear=nonlinear)
        assert total < (1.5 * limit if nonlinear else limit), angle


@pytest.mark.parametrize("family", LIMITS)
@pytest.mark.parametrize(("group", "degrees"), CASES)
def test_so_do_they_with_the_weights_they_are_born_with(group, degrees, family):
    for angle, limit in zip((17, 45), LIMITS[family], strict=True):
        total, _ = mean_error(group, degrees, family, angle, weights="initial")
        assert total < limit, angle


@pytest.mark.parametrize("weights", ["normal", "initial"])
@pytest.mark.parametrize(("group", "degrees"), CASES)
def test_no_degree_that_matters_turns_wrongly(group, degrees, weights):
    for angle in (17, 45):
        _, per_degree = mean_error(group, degrees, "fitted", angle, weights=weights)
        errors = {degree: error for degree, (error, energy) in per_degree.items() if energy > 0.01}
        assert max(errors.values()) < 0.15, (angle, errors)


@pytest.mark.parametrize(("group", "degrees"), CASES)
def test_sampled_rings_err_more_than_fitted_and_these_more_than_the_purest(group, degrees):
    for angle in (17, 45):
        sampled, fitted, purest = (
            mean_error(group, degrees, family, angle)[0] for family in ("sampled", "fitted", "purest")
        )
        assert 2 * fitted < sampled
        assert 2 * purest < fitted
