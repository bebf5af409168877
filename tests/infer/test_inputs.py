"""Arrays as inputs: which ones a model takes, and what their values mean."""

import numpy as np
import pytest
import torch

from steerformer import models
from steerformer.infer.inputs import array_scan
from steerformer.io.errors import DataError

SHAPES = {2: (6, 5), 3: (6, 5, 4)}


@pytest.fixture
def model(group):
    """A small model with two channels."""
    layers = {"size": 8, "classes": 2, "widths": [[2]], "kernel_size": 3, "hidden": 4, "in_channels": 2}
    return models.build({"kind": "cnn", "group": group.name, **layers})


def test_arrays_and_tensors_of_any_layout_give_the_same_scan(group, model):
    """Reversed, big-endian, double precision and bfloat16: NumPy or torch alone would refuse some of them."""
    values = np.arange(2 * np.prod(SHAPES[group.dim])).reshape(2, *SHAPES[group.dim]).astype(np.float32)
    twice_reversed = values[:, ::-1].copy()[:, ::-1]
    for array in (
        values,
        twice_reversed,
        values.astype(">f8"),
        torch.from_numpy(values),
        torch.tensor(values).double(),
    ):
        found = array_scan(array, model)
        assert found.x.dtype == torch.float32 and np.array_equal(found.x.numpy(), values)
    halves = torch.from_numpy(values).bfloat16().requires_grad_()
    assert torch.equal(array_scan(halves, model).x, halves.detach().float())
    assert found.spacing == (1.0,) * group.dim and found.kind == ("image" if group.dim == 2 else "volume")
    assert array_scan(values, model, [2.0] * group.dim).spacing == (2.0,) * group.dim


def test_input_is_not_changed(group, model):
    x = torch.ones(2, *SHAPES[group.dim])
    array_scan(x, model).x.zero_()
    assert x.min() == 1


@pytest.mark.parametrize(("kind", "largest"), [(np.uint8, 255), (np.uint16, 65535), (bool, 1), (np.float32, 1)])
def test_integer_images_are_scaled_as_files_are_and_volumes_are_not(group, model, kind, largest):
    array = np.full((2, *SHAPES[group.dim]), largest, dtype=kind)
    assert array_scan(array, model).x.unique().tolist() == [1.0 if group.dim == 2 else largest]


def test_other_shapes_and_values_are_rejected(group, model):
    expected = {2: r"takes \(2, height, width\)", 3: r"takes \(2, x, y, z\)"}[group.dim]
    for shape in (SHAPES[group.dim], (3, *SHAPES[group.dim]), (1, 2, *SHAPES[group.dim]), (2, *(0,) * group.dim)):
        with pytest.raises(DataError, match=expected):
            array_scan(np.zeros(shape), model)
    with pytest.raises(DataError, match="scan 3 holds NaN or infinity"):
        array_scan(np.full((2, *SHAPES[group.dim]), np.inf), model, name="scan 3")
    with pytest.raises(DataError, match="holds complex128, expected real numbers"):
        array_scan(np.zeros((2, *SHAPES[group.dim]), dtype=complex), model)


@pytest.mark.parametrize("spacing", [(1.0,), (1.0, 0.0, 1.0), (1.0, -1.0), (1.0, float("nan"), 1.0)])
def test_spacing_that_does_not_fit_is_rejected(group, model, spacing):
    with pytest.raises(DataError, match=f"spacing takes {group.dim} positive numbers"):
        array_scan(np.zeros((2, *SHAPES[group.dim])), model, spacing)
