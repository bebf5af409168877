"""Write docs/attention.md and its figure: equivariance errors of attention, and its behavior at initialization."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from kernel_errors import BLOB_SIGMA
from steerformer.fields import FieldType, voxel_coordinates
from steerformer.groups import SO2, SO3, Group
from steerformer.nn import Attention, Encoder, TransformerBlock
from steerformer.reproduce.markdown import markdown_table
from steerformer.testing import blobs, equivariance_error

_DEPTH = 8
_SIZES = {"SO2": 33, "SO3": 13}
_TYPES = {"SO2": ((4,) * 4, (4,) * 8), "SO3": ((4, 4, 4), (4, 4, 4, 4))}
_POSITIONS: dict[str, dict[str, object]] = {
    "soft": {"radial": "soft"},
    "paper": {"radial": "paper"},
    "none": {"positional": False},
}


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure, draw and write the page; returns its path."""
    from steerformer.plots.kernels import draw_encodings

    (folder / "images").mkdir(parents=True, exist_ok=True)
    draw_encodings(folder / "images" / "encodings.png")
    progress("measuring: any angle")
    angles = any_angle()
    progress("measuring: rotations of the grid")
    exact = grid_rotations()
    progress("measuring: initialization")
    page = folder / "attention.md"
    page.write_text(_PAGE.format(angles=angles, exact=exact, initial=initial_weights(), depth=_DEPTH, **_SIZES))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("docs"), help="folder for the page and its figure (default: docs)"
    )
    print(f"wrote {write_page(parser.parse_args().out, progress=print)}")


def modules(field_type: FieldType, **options: object) -> dict[str, nn.Module]:
    """Attention, one block and two blocks, with the same initial weights for all positional encodings."""
    positional = options.pop("positional", True)
    torch.manual_seed(0)
    found: dict[str, nn.Module] = {
        "Attention": Attention(field_type, num_heads=2, **options),  # type: ignore[arg-type]
        "TransformerBlock": TransformerBlock(field_type, num_heads=2, **options),  # type: ignore[arg-type]
        "Encoder, depth 2": Encoder(field_type, num_heads=2, depth=2, **options),
    }
    attentions = [m for layer in found.values() for m in layer.modules() if isinstance(m, Attention)]
    for attention in attentions if not positional else []:
        attention.key_position = attention.value_position = None
    return found


def any_angle() -> str:
    """Equivariance errors inside a disc or ball at 17 degrees, by positional encoding."""
    rows = []
    for group in (SO2, SO3):
        for copies in _TYPES[group.name]:
            field_type = FieldType(group, copies)
            columns = [modules(field_type, **options) for options in _POSITIONS.values()]
            for name in columns[0]:
                errors = [f"{disc_error(column[name].double()):.1e}" for column in columns]
                rows.append([name, f"{group.dim}D", str(field_type), *errors])
    return markdown_table(["layer", "", "type", "soft", "paper", "none"], rows)


def disc_error(layer: nn.Module) -> float:
    """Relative equivariance error of smooth scenes inside a disc or ball, at its center."""
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    group, size = field_type.group, _SIZES[field_type.group.name]
    mask = torch.linalg.vector_norm(voxel_coordinates((size,) * group.dim), dim=-1) <= size / 2
    scene = blobs(field_type, batch=8, sigma=BLOB_SIGMA[group.name], extent=size / 6)

    def within(x: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = layer(x, mask.expand(len(x), *mask.shape))
        return found

    R = _seventeen_degrees(group)
    return equivariance_error(within, R, scene=scene, size=size, in_type=field_type, out_type=field_type).total


def grid_rotations() -> str:
    """Largest equivariance error over rotations of the grid, on white noise, by precision."""
    rows = []
    for group in (SO2, SO3):
        field_type = FieldType(group, (4, 2, 2))
        for name, layer in modules(field_type).items():
            cells = [_grid_error(layer.double(), torch.float64), _grid_error(layer.float(), torch.float32)]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cells.append(_grid_error(layer, torch.float32))
            rows.append([name, f"{group.dim}D", *(f"{cell:.0e}" for cell in cells)])
    return markdown_table(["layer", "", "float64", "float32", "autocast bfloat16"], rows)


def initial_weights() -> str:
    """Number of attended voxels at initialization, and growth of features in eight blocks."""
    rows = []
    for group, size in ((SO2, 8), (SO3, 4)):
        for copies in ((8,) * 4, (16, 8, 4)):
            field_type = FieldType(group, copies)
            torch.manual_seed(0)
            x = field_type.randn(8, size)
            cells = [f"{_attended_voxels(field_type, x, scale):.0f}" for scale in ("paper", "total")]
            with torch.no_grad():
                growth = Encoder(field_type, num_heads=4, depth=_DEPTH)(x).norm() / x.norm()
            rows.append([f"{group.dim}D", str(field_type), *cells, f"{growth:.2f}"])
    return markdown_table(
        ["", "type", "attended voxels, paper's scale", "total scale", f"growth in {_DEPTH} blocks"], rows
    )


def _attended_voxels(field_type: FieldType, x: Tensor, scale: str) -> float:
    block = TransformerBlock(field_type, num_heads=4, scale=scale)
    with torch.no_grad():
        weights = block.attention(block.attention_norm(x), return_weights=True)[1]
    return (-(weights * weights.log()).sum(dim=-1)).exp().mean().item()


def _grid_error(layer: nn.Module, dtype: torch.dtype) -> float:
    field_type: FieldType = layer.in_type  # type: ignore[assignment]
    x = field_type.randn(2, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    with torch.no_grad():
        return max(equivariance_error(layer, R, x=x).total for R in field_type.group.grid_rotations())


def _seventeen_degrees(group: Group) -> Tensor:
    return group.rotation(math.radians(17), *([(1.0, 2.0, 3.0)] if group.dim > 2 else []))


_PAGE = """<!-- Written by `python docs/programs/attention.py` (`make docs`): change the program, not this page. -->
# Equivariance of attention

[theory.md](theory.md) has the formulas, [benchmarks.md](benchmarks.md) time and memory.

## At any angle

Relative equivariance error for a rotation by 17 degrees. Inputs are smooth analytic scenes (Gaussian blobs, sigma 2 in
2D and 1.5 in 3D), rotated before they are sampled, inside a disc of {SO2} or a ball of {SO3} voxels; outputs are
compared at its center. Initial weights, float64. Columns are positional encodings: soft radial profile (the default),
the paper's profile, and none.

{angles}

The paper's profile $r^{{-2}}$ is largest at the four (in 3D six) nearest voxels, where degree 4 aliases with 0 and
degree 3 with -1: there, encodings of high degrees rotate with the grid and not with the scene. The soft profile,
$r^{{-2}}(1 - e^{{-(r/0.6\\ell)^4}})$, equals the paper's except for a core that grows with the degree; `radial="paper"`
selects the paper's. Residual blocks have smaller errors than attention alone because most of their output is their
input.

![Positional encodings of degrees 0 to 4](images/encodings.png)

*Real part of the encoding of each degree around the central voxel: the paper's profile (top), the soft one (bottom).*

## Under rotations of the grid

Largest relative equivariance error over all rotations of the grid, for white noise on 5 voxels along each axis and
fields of type 4x0+2x1+2x2.

{exact}

## At initialization

*Attended voxels*: exponential of the entropy of the attention weights, for 64 voxels with features of unit variance; 1
is attention to a single voxel, 64 is uniform attention. *Growth*: norm of the features after {depth} blocks, relative
to the input.

{initial}
"""


if __name__ == "__main__":
    main()
