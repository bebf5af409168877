"""Writes ``docs/attention.md``: how equivariant attention is, and how calmly it starts."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType, voxel_coordinates
from steerformer.groups import SO2, SO3, Group
from steerformer.nn import Attention, Encoder, TransformerBlock
from steerformer.reproduce.kernels import BLOB_SIGMA
from steerformer.reproduce.kernels_page import markdown
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
    """Measure, draw and write; returns the page."""
    from steerformer.viz import draw_encodings

    (folder / "images").mkdir(parents=True, exist_ok=True)
    draw_encodings(folder / "images" / "encodings.png")
    progress("measuring: every angle")
    angles = any_angle()
    progress("measuring: the grid's rotations")
    exact = grid_rotations()
    progress("measuring: fresh weights")
    page = folder / "attention.md"
    page.write_text(_PAGE.format(angles=angles, exact=exact, start=fresh_weights(), depth=_DEPTH, **_SIZES))
    return page


def modules(field_type: FieldType, **options: object) -> dict[str, nn.Module]:
    """Attention, a block and two blocks; the same fresh weights for all options, or without encodings."""
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
    """Errors within a disc or ball, by positional encoding."""
    rows = []
    for group in (SO2, SO3):
        for copies in _TYPES[group.name]:
            field_type = FieldType(group, copies)
            columns = [modules(field_type, **options) for options in _POSITIONS.values()]
            for name in columns[0]:
                errors = [f"{disc_error(column[name].double()):.1e}" for column in columns]
                rows.append([name, f"{group.dim}D", str(field_type), *errors])
    return markdown(["", "", "type", "soft", "paper", "none"], rows)


def disc_error(layer: nn.Module) -> float:
    """Relative error at 17 degrees, of smooth scenes within a disc or ball, compared at its center."""
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
    """Largest error over the grid's rotations, on white noise, in double and single precision and under autocast."""
    rows = []
    for group in (SO2, SO3):
        field_type = FieldType(group, (4, 2, 2))
        for name, layer in modules(field_type).items():
            cells = [_grid_error(layer.double(), torch.float64), _grid_error(layer.float(), torch.float32)]
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cells.append(_grid_error(layer, torch.float32))
            rows.append([name, f"{group.dim}D", *(f"{cell:.0e}" for cell in cells)])
    return markdown(["", "", "float64", "float32", "autocast bfloat16"], rows)


def fresh_weights() -> str:
    """Tokens a fresh block looks at, and what becomes of features in eight blocks."""
    rows = []
    for group, size in ((SO2, 8), (SO3, 4)):
        for copies in ((8,) * 4, (16, 8, 4)):
            field_type = FieldType(group, copies)
            torch.manual_seed(0)
            x = field_type.randn(8, size)
            cells = [f"{_tokens_seen(field_type, x, scale):.0f}" for scale in ("paper", "total")]
            with torch.no_grad():
                growth = Encoder(field_type, num_heads=4, depth=_DEPTH)(x).norm() / x.norm()
            rows.append([f"{group.dim}D", str(field_type), *cells, f"{growth:.2f}"])
    return markdown(["", "type", "tokens seen, paper's scale", "total scale", f"growth in {_DEPTH} blocks"], rows)


def _tokens_seen(field_type: FieldType, x: Tensor, scale: str) -> float:
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


_PAGE = """<!-- Written by `steerformer reproduce attention` (`make docs`): change the program, not this page. -->
# Steerable attention

What it computes is in [theory.md](theory.md); time and memory are in the README. Here is how equivariant it is.

## At any angle

Relative error when smooth scenes (blobs of sigma 2 in the plane, 1.5 in space; formulas, turned first and sampled then)
turn by 17 degrees, seen through a disc of {SO2} or a ball of {SO3} voxels across and compared at its center. Fresh
weights, float64. The columns are positional encodings: with the soft profile (the default), with the paper's, and none.

{angles}

The paper's profile $r^{{-2}}$ is strongest at the four (six) nearest voxels, and these cannot tell degree 4 from 0, nor
3 from -1: what they say of high degrees turns with the grid and not with the scene. The soft profile,
$r^{{-2}}(1 - e^{{-(r/0.6\\ell)^4}})$, is the paper's but for a core that grows with the degree. `radial="paper"` gives
the paper's. Residual blocks err less than attention alone because most of their output is their input.

![Positional encodings of degrees 0 to 4](images/encodings.png)

*Real part of the encoding of each degree around the central voxel. Above the paper's profile, below the soft one.*

## Under the grid's rotations

Largest relative error over all rotations of the grid, white noise on 5 voxels along each axis, 4x0+2x1+2x2.

{exact}

## Fresh weights

*Tokens seen*: the exponential of the entropy of attention weights, of 64 voxels with features of unit variance; 1
would be attention stuck to a single voxel, 64 attention that tells nothing apart. *Growth*: norm of the features after
{depth} blocks, relative to that before.

{start}
"""
