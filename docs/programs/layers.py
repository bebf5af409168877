"""Write docs/layers.md: equivariance errors of every layer, and the variance of features in deep stacks."""

import argparse
import copy
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from kernel_errors import BLOB_SIGMA, default_rotations
from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3, Group
from steerformer.nn import (
    MLP,
    AvgPool,
    BatchNorm,
    Conv,
    ConvTranspose,
    FieldDropout,
    FourierReLU,
    Gated,
    Invariants,
    LayerNorm,
    Linear,
    NormMaxPool,
    NormReLU,
    RadialWindow,
    Resample,
    TensorProduct,
)
from steerformer.reproduce.markdown import markdown_table
from steerformer.testing import blobs, equivariance_error

_DEPTH = 10


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure and write the page; returns its path."""
    progress("measuring: every layer")
    errors = layer_errors()
    progress("measuring: deep stacks")
    page = folder / "layers.md"
    page.write_text(_PAGE.format(errors=errors, depth=deep_stacks(), layers=_DEPTH))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for the page (default: docs)")
    print(f"wrote {write_page(parser.parse_args().out, progress=print)}")


def example_layers(group: Group) -> dict[str, nn.Module]:
    """Every layer, on an image of 2 channels or on fields of type 4x0+2x1+2x2."""
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
        "RadialWindow 2": RadialWindow(features, width=2.0),
        "Invariants": Invariants(features),
        "FieldDropout": FieldDropout(features),
        "MLP": MLP(features),
        "Conv, reflect padding": Conv(features, features, kernel_size=5, padding_mode="reflect"),
        "Conv, 2 groups": Conv(features, features, kernel_size=5, groups=2),
        "ConvTranspose, stride 3": ConvTranspose(features, features, kernel_size=9, stride=3),
        "NormMaxPool 2": NormMaxPool(features, kernel_size=2),
        "TensorProduct, 3 paths": TensorProduct(features, features, paths=[(1, 1, 0), (0, 1, 1), (1, 1, 2)]),
    }


def layer_errors() -> str:
    """Equivariance errors of every layer under rotations of the grid, by precision, and at other angles."""
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
    return markdown_table(["layer", "", "float64", "float32", "autocast bfloat16", "any angle"], rows)


def _grid_error(layer: nn.Module, dtype: torch.dtype) -> float:
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    x = field_type.randn(2, 9, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return max(equivariance_error(layer, R, x=x).total for R in field_type.group.grid_rotations())


def _any_angle_error(layer: nn.Module) -> float:
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    scene = blobs(field_type, sigma=BLOB_SIGMA[field_type.group.name])
    rotations = default_rotations(field_type.group)[:2]
    # so that the output has a central voxel
    size = 14 if isinstance(layer, (AvgPool, NormMaxPool, Resample)) else 13
    size = 5 if isinstance(layer, ConvTranspose) else size  # the central voxel sees 3 voxels along each axis
    errors = [equivariance_error(layer, R, scene=scene, size=size).total for R in rotations]
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


def deep_stacks() -> str:
    """Standard deviation of the channels after each of ten convolutions with initial weights."""
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
    return markdown_table(["", "input", *range(1, _DEPTH + 1)], rows)


def _smooth(image: FieldType, size: int) -> Tensor:
    scene = blobs(image, batch=2, count=20 * size, extent=size / 2, dtype=torch.float32)
    x = scene.sample(size)
    return x / x.std()


_PAGE = """<!-- Written by `python docs/programs/layers.py` (`make docs`): change the program, not this page. -->
# Equivariance of the layers

Relative equivariance error of every layer in eval mode, for fields of type 4x0+2x1+2x2. The first three columns are the
largest error over all rotations of the grid, on white noise of 9 voxels along each axis: these need no interpolation,
so layers are exact up to rounding. *Any angle*: smooth analytic scenes (Gaussian blobs, sigma 2 in 2D and 1.5 in 3D),
rotated before they are sampled, outputs compared at the center; 17 degrees in 2D, two random rotations in 3D. Pointwise
layers are exact at every angle, except FourierReLU, whose grid of directions is finite. The error of layers that mix
neighbors is limited by the resolution of the grid. NormMaxPool chooses single voxels, others after rounding or a small
rotation, and few voxels of its kernel reach each voxel of the output of ConvTranspose, so their errors are larger than
those of AvgPool, and of Resample followed by Conv.

{errors}

## Variance of features in deep stacks

Standard deviation of the channels after each of {layers} convolutions with initial weights (zero padding included), for
an input of unit variance. Weights that keep the variance of white noise would double smooth features in every layer;
see [theory.md](theory.md#initialization).

{depth}
"""


if __name__ == "__main__":
    main()
