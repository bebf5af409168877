"""Equivariance error against angle: the drawn errors are those of steerformer.testing."""

import numpy as np
import pytest
import torch

import steerformer as sf
from models.small import classifier
from steerformer import SO2, SO3, FieldType, viz
from steerformer.testing import blobs, equivariance_error

ANGLES = [0, 30, 90]


def curves(figure):
    return {line.get_label(): np.asarray(line.get_ydata()) for line in figure.axes[0].lines}


def layer(group, kernel_size=3):
    return sf.nn.Conv(FieldType.image(group, 1), FieldType(group, (1, 1)), kernel_size=kernel_size).double()


def test_drawn_errors_are_those_of_the_library_in_2d():
    conv, scene = layer(SO2), blobs(FieldType.image(SO2, 1), batch=3)
    found = curves(viz.equivariance(conv, angles=ANGLES, scene=scene, size=9))
    assert list(found) == ["total", "degree 0", "degree 1"]
    expected = equivariance_error(conv, SO2.rotation(np.pi / 6), scene=scene, size=9)
    assert found["total"][1] == expected.total
    assert [found[f"degree {degree}"][1] for degree in (0, 1)] == list(expected.per_degree.values())
    assert found["total"].tolist() == [1e-9, expected.total, 1e-9]  # rotations of the grid are exact


def test_drawn_errors_are_those_of_the_library_in_3d():
    conv, scene = layer(SO3), blobs(FieldType.image(SO3, 1), batch=3)
    found = curves(viz.equivariance(conv, angles=ANGLES, scene=scene, size=9))
    assert list(found) == ["about axis 0", "about axis 1", "about axis 2"]
    for axis, errors in enumerate(found.values()):
        R = SO3.rotation(np.pi / 6, tuple(float(axis == other) for other in range(3)))
        assert errors.tolist() == [1e-9, equivariance_error(conv, R, scene=scene, size=9).total, 1e-9]


def test_plain_convolution_has_large_errors():
    """The control: it is drawn far above a steerable convolution."""
    image = FieldType.image(SO2, 1)
    plain = torch.nn.Conv2d(1, 1, 3, padding=1)
    control = curves(viz.equivariance(plain, angles=ANGLES, in_type=image, out_type=image))
    steerable = curves(viz.equivariance(sf.nn.Conv(image, image, kernel_size=3), angles=ANGLES))
    assert list(control) == list(steerable) == ["total"]
    assert control["total"][2] > 0.1 > 0.03 > steerable["total"].max()


def test_classifiers_are_drawn_at_their_own_size_in_eval_mode():
    model = classifier(SO2)
    statistics = model.norm.running_rms.clone()
    found = curves(viz.equivariance(model, angles=[0, 90]))
    assert found["total"].max() < 1e-4
    assert model.training and torch.equal(model.norm.running_rms, statistics)


def test_axes_have_standard_labels_and_default_angles():
    figure = viz.equivariance(layer(SO2))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rotation angle [degrees]", "relative equivariance error")
    assert axes.lines[0].get_xdata().tolist() == list(range(0, 181, 15))
    assert axes.get_yscale() == "log"


def test_missing_types_raise():
    with pytest.raises(ValueError, match=r"Conv2d has no in_type; pass in_type=FieldType"):
        viz.equivariance(torch.nn.Conv2d(1, 1, 3))
