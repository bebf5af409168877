"""Means and standard errors."""

import math

import pytest
import torch

from steerformer.metrics.statistics import binomial_error, known_mean, standard_error, with_error


def test_standard_error_is_that_of_the_mean():
    values = torch.rand(7).double()
    assert standard_error(values.tolist()) == pytest.approx(values.std().item() / math.sqrt(7))
    assert standard_error([1.0]) is None


def test_binomial_error_is_the_standard_error_of_zeros_and_ones():
    values = [1.0] * 30 + [0.0] * 10
    expected = standard_error(values) * math.sqrt(39 / 40)  # stdev divides by n - 1
    assert binomial_error(0.75, 40) == pytest.approx(expected)


def test_unknown_values_are_left_out():
    assert known_mean([1.0, None, 3.0]) == 2.0
    assert known_mean([None]) is None
    assert standard_error([1.0, None, 3.0]) == standard_error([1.0, 3.0])


def test_mean_is_shown_with_its_error_if_known():
    assert with_error(0.5, 0.25) == "0.50 ± 0.25"
    assert with_error(0.5, None) == "0.50" and with_error(None, None) == "-"
