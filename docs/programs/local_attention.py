"""Write docs/local_attention.md: local attention and cross-attention, their equivariance errors and times."""

import argparse
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from attention import disc_error
from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3, Group
from steerformer.nn import Attention
from steerformer.reproduce.markdown import markdown_table

_SIZES = ((SO2, 64), (SO2, 96), (SO3, 16), (SO3, 20))
_RADII = {"SO2": (3.0, 5.0, 8.0), "SO3": (2.0, 3.0, 5.0)}
_COPIES = {"SO2": (8,) * 4, "SO3": (8, 4, 2)}


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure and write the page; returns its path."""
    progress("measuring: rotations of the grid")
    exact = grid_rotations()
    progress("measuring: any angle")
    angles = any_angle()
    rows = []
    for group, size in _SIZES:
        progress(f"measuring: times of {group.dim}D, {size}")
        rows.append(times(group, size))
    page = folder / "local_attention.md"
    header = ["grid", "type", "all voxels [s]", *(f"radius {name}" for name in ("3 (2)", "5 (3)", "8 (5)"))]
    machine = f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}"
    page.write_text(_PAGE.format(exact=exact, angles=angles, times=markdown_table(header, rows), machine=machine))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for the page (default: docs)")
    torch.set_num_threads(1)
    print(f"wrote {write_page(parser.parse_args().out, progress=print)}")


def grid_rotations() -> str:
    """Largest equivariance error over rotations of the grid, on white noise, when both fields are rotated."""
    rows = []
    for group in (SO2, SO3):
        queries, keys = FieldType(group, (4, 2, 2)), FieldType(group, (3, 1, 1))
        for name, context, options in (
            ("radius 2", None, {"radius": 2.0}),
            ("radius 2, falloff 1", None, {"radius": 2.0, "falloff": 1.0}),
            ("context of 5 voxels", 5, {}),
            ("context of 4 voxels", 4, {}),
            ("context of 3 voxels of twice the size", 3, {"context_spacing": (2.0,) * group.dim}),
            ("context of 4 voxels, radius 2", 4, {"radius": 2.0}),
        ):
            torch.manual_seed(0)
            layer = Attention(queries, None if context is None else keys, num_heads=2, **options)
            errors = [f"{_rotation_error(layer.to(dtype), context, dtype):.0e}" for dtype in _DTYPES]
            rows.append([name, f"{group.dim}D", *errors])
    return markdown_table(["attention of 5 voxels along each axis", "", "float64", "float32"], rows)


_DTYPES = (torch.float64, torch.float32)


def _rotation_error(layer: Attention, size: int | None, dtype: torch.dtype) -> float:
    of_queries, of_context = layer.in_type, layer.context_type
    x = of_queries.randn(2, 5, dtype=dtype)
    context = None if of_context is None or size is None else of_context.randn(2, size, dtype=dtype)
    errors = []
    with torch.no_grad():
        y = layer(x, context)
        for R in of_queries.group.grid_rotations():
            other = None if context is None or of_context is None else of_context.rotate(context, R)
            errors.append((layer(of_queries.rotate(x, R), other) - of_queries.rotate(y, R)).norm() / y.norm())
    return max(errors).item()


def any_angle() -> str:
    """Equivariance errors at 17 degrees on the smooth scenes of docs/attention.md."""
    rows = []
    for group, radius in ((SO2, 5.0), (SO3, 3.0)):
        field_type, cells = FieldType(group, (4,) * 4 if group is SO2 else (4, 4, 4)), []
        for reach, falloff in ((None, 0.0), (radius, 0.0), (radius, 1.0), (radius, 2.0)):
            torch.manual_seed(0)
            layer = Attention(field_type, num_heads=2, radius=reach, falloff=falloff)
            cells.append(f"{disc_error(layer.double()):.1e}")
        rows.append([f"{group.dim}D", str(field_type), f"{radius:g}", *cells])
    return markdown_table(["", "type", "radius", "all voxels", "falloff 0", "falloff 1", "falloff 2"], rows)


def times(group: Group, size: int) -> list[str]:
    """Seconds of forward and backward of all voxels, and how many times faster local attention is."""
    field_type = FieldType(group, _COPIES[group.name])
    x = field_type.randn(1, size).requires_grad_()
    of_all = _seconds(Attention(field_type, num_heads=2), x, rounds=1)
    ratios = [of_all / _seconds(Attention(field_type, num_heads=2, radius=r), x) for r in _RADII[group.name]]
    label = " x ".join([str(size)] * group.dim)
    return [label, str(field_type), f"{of_all:.1f}", *(f"{ratio:.1f}" for ratio in ratios)]


def _seconds(layer: Attention, x: Tensor, *, rounds: int = 3) -> float:
    found = math.inf
    for number in range(rounds + (rounds > 1)):
        start = time.process_time()
        layer(x).sum().backward()
        if number or rounds == 1:  # the first round builds tables
            found = min(found, time.process_time() - start)
    return found


_PAGE = """<!-- Written by `python docs/programs/local_attention.py`: change the program, not this page. -->
# Local attention and cross-attention

`Attention(features, num_heads=4, radius=5.0)` attends to voxels within a distance, and
`Attention(features, context, num_heads=4)` to another field, on a grid of its own.
[theory.md](theory.md#cross-attention-and-local-attention) has the formulas.

## Time

CPU seconds of forward and backward of one layer with 2 heads, attending to all voxels, and how many times faster the
layer with a radius is; radii in voxels, those of volumes in brackets. Layers include their linear maps. Below 1,
attention to all voxels is faster.

{times}

Measured on {machine}, as time of the process.

## Under rotations of the grid

Largest relative equivariance error over all rotations of the grid, for white noise, when both fields are rotated.
Voxels of a grid of 5 and of one of 4 lie half a voxel apart.

{exact}

## At any angle

Relative equivariance error for a rotation by 17 degrees, on the smooth scenes of [attention.md](attention.md), at
initial weights. Without a fall-off, voxels at the radius are in the ball for one orientation of the scene and outside
for another.

{angles}
"""


if __name__ == "__main__":
    main()
