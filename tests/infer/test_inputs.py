"""Arrays as inputs: which ones a model takes, and what their values mean."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from steerformer import models
from steerformer.infer.inputs import array_scan, modality_files
from steerformer.io.errors import DataError
from steerformer.io.images import read_image

SHAPES = {2: (6, 5), 3: (6, 5, 4)}


@pytest.fixture
def model(group):
    """A small model with two channels."""
    layers = {"size": 8, "classes": 2, "widths": [[2]], "kernel_size": 3, "hidden": 4, "in_channels": 2}
    return models.build({"kind": "cnn", "group": group.name, **layers})


def test_arrays_and_tensors_of_any_layout_give_the_same_scan(group, model):
    """Reversed, big-endian, double precision and bfloat16: NumPy or torch alone would refuse some of them."""
    values = np.linspace(0, 1, 2 * math.prod(SHAPES[group.dim]), dtype=np.float32).reshape(2, *SHAPES[group.dim])
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


@pytest.fixture
def gray_model():
    """A model of gray images."""
    return models.build({"kind": "cnn", "group": "SO2", "size": 8, "classes": 2, "widths": [[2]], "hidden": 4})


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_image_array_equals_a_file_with_the_same_values(gray_model, tmp_path, kind):
    values = np.random.default_rng(0).integers(0, np.iinfo(kind).max, (6, 5), dtype=kind, endpoint=True)
    Image.fromarray(values).save(tmp_path / "a.png")
    for array in (values[None], values[None].astype(np.dtype(kind).newbyteorder(">"))):
        assert torch.equal(array_scan(array, gray_model).x, read_image(tmp_path / "a.png", 1))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint32])
def test_images_of_wide_integers_are_rejected(gray_model, kind):
    words = f"array 0 holds {np.dtype(kind)}; pass uint8, uint16 or floats from 0 to 1"
    for array in (np.ones((1, 6, 5), dtype=kind), torch.ones(1, 6, 5, dtype=torch.int64)):
        with pytest.raises(DataError, match=words if array.dtype == kind else "array 0 holds int64; pass uint8"):
            array_scan(array, gray_model, name="array 0")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((1, 6, 5), -3, dtype=np.int16), r"from -3 to -3 \(int16\)"),
        (np.full((1, 6, 5), -3, dtype=np.int8), r"from -3 to -3 \(int8\)"),
        (np.full((1, 6, 5), 200.0, dtype=np.float32), r"from 200 to 200 \(float32\)"),
        (torch.full((1, 6, 5), -0.5), r"from -0\.5 to -0\.5 \(float32\)"),
    ],
)
def test_image_values_out_of_range_are_rejected_as_in_files(gray_model, tmp_path, array, words):
    with pytest.raises(DataError, match=f"array 0 holds values {words}, expected 0 to 65535, or fractions"):
        array_scan(array, gray_model, name="array 0")
    Image.fromarray(np.asarray(array, dtype=np.float32)[0]).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif holds values .*, expected 0 to 65535, or fractions"):
        read_image(tmp_path / "a.tif", 1)


def test_paths_and_sequences_of_paths_are_files():
    assert modality_files("a.nii") == modality_files(Path("a.nii")) == modality_files(["a.nii"]) == (Path("a.nii"),)
    assert modality_files(("a.nii", Path("b.nii"))) == (Path("a.nii"), Path("b.nii"))
    assert modality_files(np.zeros((1, 2, 2))) is modality_files(torch.zeros(1, 2, 2)) is modality_files([]) is None


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
