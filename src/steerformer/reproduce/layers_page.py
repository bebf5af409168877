"""Writes ``docs/layers.md``: how equivariant every layer is, and what becomes of features in a deep stack."""

import copy
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3, Group
from steerformer.nn import (
    MLP,
    AvgPool,
    BatchNorm,
    Conv,
    FieldDropout,
    FourierReLU,
    Gated,
    Invariants,
    LayerNorm,
    Linear,
    NormReLU,
    Resample,
    TensorProduct,
)
from steerformer.reproduce.kernels import BLOB_SIGMA, usual_rotations
from steerformer.reproduce.kernels_page import markdown
from steerformer.testing import blobs, equivariance_error

_DEPTH = 10


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure and write; returns the page."""
    progress("measuring: every layer")
    errors = layer_errors()
    progress("measuring: deep stacks")
    page = folder / "layers.md"
    page.write_text(_PAGE.format(errors=errors, depth=deep_stacks(), layers=_DEPTH))
    return page


def example_layers(group: Group) -> dict[str, nn.Module]:
    """Every layer, on a raw image or on 4 copies of degree 0, 2 of degree 1 and 2 of degree 2."""
    image, features = FieldType.image(group, 2), FieldType(group, (4, 2, 2))
    return {
        "Conv, from an image": Conv(image, features, kernel_size=5),
        "Conv": Conv(features, features, kernel_size=5),
        "Conv, stride 2": Conv(features, features, kernel_size=5, stride=2),
        "Linear": Linear(features, features),
        "NormReLU, b = -0.5": NormReLU(features, bias=-0.5),
        "Gated": Gated(features),
        "TensorProduct": TensorProduct(features, features),
        "FourierReLU": FourierReLU(features),
        "LayerNorm": LayerNorm(features),
        "BatchNorm": BatchNorm(features),
        "AvgPool 2": AvgPool(features, kernel_size=2),
        "AvgPool 2, antialiased": AvgPool(features, kernel_size=2, antialiased=True),
        "Resample 0.5": Resample(features, scale=0.5),
        "Invariants": Invariants(features),
        "FieldDropout": FieldDropout(features),
        "MLP": MLP(features),
    }


def layer_errors() -> str:
    """Errors of every layer under the grid's rotations, in three precisions, and at other angles."""
    rows = []
    for group in (SO2, SO3):
        torch.manual_seed(0)
        for name, layer in example_layers(group).items():
            layer.eval()
            exact = copy.deepcopy(layer).double()
            cells = [_grid_error(exact, torch.float64), _grid_error(layer, torch.float32)]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cells.append(_grid_error(layer, torch.float32))
            cells.append(_any_angle_error(exact))
            rows.append([name, f"{group.dim}D", *(f"{cell:.0e}" for cell in cells)])
    return markdown(["layer", "", "float64", "float32", "autocast bfloat16", "any angle"], rows)


def _grid_error(layer: nn.Module, dtype: torch.dtype) -> float:
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    x = field_type.randn(2, 9, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return max(equivariance_error(layer, R, x=x).total for R in field_type.group.grid_rotations())


def _any_angle_error(layer: nn.Module) -> float:
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    scene = blobs(field_type, sigma=BLOB_SIGMA[field_type.group.name])
    rotations = usual_rotations(field_type.group)[:2]
    # whichever gives an output with a central voxel, which for coarser grids then lies between voxels of the input
    size = 14 if isinstance(layer, (AvgPool, Resample)) else 13
    errors = [equivariance_error(layer, R, scene=scene, size=size).total for R in rotations]
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


def deep_stacks() -> str:
    """Standard deviation of the channels after each of ten convolutions, fresh weights."""
    rows = []
    for group, copies, size in ((SO2, (12, 12, 12, 12), 48), (SO3, (8, 4, 2), 16)):
        image, features = FieldType.image(group, 1), FieldType(group, copies)
        inputs = {"white noise": image.randn(2, size), "smooth": _smooth(image, size)}
        for name, x in inputs.items():
            torch.manual_seed(0)
            cells = []
            for depth in range(_DEPTH):
                x = Conv(features if depth else image, features, kernel_size=5)(x).detach()
                cells.append(f"{x.std():.2f}")
            rows.append([f"{group.dim}D", name, *cells])
    return markdown(["", "input", *range(1, _DEPTH + 1)], rows)


def _smooth(image: FieldType, size: int) -> Tensor:
    scene = blobs(image, batch=2, count=20 * size, extent=size / 2, dtype=torch.float32)
    x = scene.sample(size)
    return x / x.std()


_PAGE = """<!-- Written by `steerformer reproduce layers` (`make docs`): change the program, not this page. -->
# How equivariant the layers are

Relative error of every layer in eval mode, 4x0+2x1+2x2. The first three columns: the largest over all rotations of the
grid, on white noise of 9 voxels along each axis, where nothing is interpolated and equality should be exact but for
rounding. *Any angle*: on smooth scenes (blobs of sigma 2 in the plane, 1.5 in space; formulas, turned first and sampled
then), compared at the center; 17 degrees in the plane, two random rotations in space. What acts at each point by itself
is exact at every angle, but for FourierReLU, whose grid of directions is finite; what mixes neighbors is as good as
the grid lets it be.

{errors}

# What becomes of features in a deep stack

Standard deviation of the channels after each of {layers} convolutions with fresh weights (zero padding included), for
an input of unit variance. Weights fit for white noise would double smooth features in every layer; see `sf.nn.Conv`.

{depth}
"""
