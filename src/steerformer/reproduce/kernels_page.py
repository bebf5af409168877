"""Writes ``docs/kernels.md`` and its pictures from measurements made on the spot."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from steerformer.groups import SO2, SO3, Group
from steerformer.kernels import FAMILIES, Family, VoxelKernels
from steerformer.reproduce.kernels import (
    per_degree_errors,
    single_kernel_errors,
    spacing_ignored_errors,
    two_convolutions,
    usual_rotations,
)
from steerformer.testing import EquivarianceError

DEGREES = (1, 2, 3, 4)


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure, draw and write; returns the page."""
    from steerformer.viz import draw_kernels, draw_purity

    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    progress("drawing kernels")
    for group in (SO2, SO3):
        draw_kernels(group, images / f"kernels_{group.dim}d.png")
    draw_purity(images / "purity.png")
    sections = {}
    for name, render in _SECTIONS.items():
        progress(f"measuring: {name}")
        sections[name] = render()
    page = folder / "kernels.md"
    page.write_text(_PAGE.format(**sections))
    return page


def single_kernels() -> str:
    """One kernel alone: the best of each family, by degree."""
    rows = []
    for group in (SO2, SO3):
        for degree in DEGREES:
            best = {family: best_kernel_error(group, family, degree) for family in FAMILIES}
            ratio = best["sampled"] / best["purest"]
            rows.append([_grid_name(group), degree, *(f"{best[family]:.1e}" for family in FAMILIES), f"{ratio:.1f}"])
    return markdown(["grid", "degree", *(f"{family}" for family in FAMILIES), "sampled / purest"], rows)


def best_kernel_error(group: Group, family: Family, degree: int) -> float:
    """Error of the best ring of a family, or of the first purest kernel."""
    found = single_kernel_errors(_kernels(group, family, tolerance=1.0), degree, usual_rotations(group))
    # The first of the purest is judged, not the luckiest.
    return found[0].error if family == "purest" else min(kernel.error for kernel in found)


def counts_and_reach() -> str:
    """How many kernels pass the tolerance, and how far they see."""
    rows = []
    for group in (SO2, SO3):
        for family in FAMILIES:
            cells = []
            for degree in range(6):
                kernels = single_kernel_errors(_kernels(group, family), degree, usual_rotations(group)[:1])
                cells.append(", ".join(f"{kernel.reach:.1f}" for kernel in kernels) or "none")
            rows.append([_grid_name(group), family, *cells])
    return markdown(["grid", "family", *(f"degree {degree}" for degree in range(6))], rows)


def networks() -> str:
    """Two convolutions with random weights, alone and with a nonlinearity between."""
    tried: list[tuple[Family, float]] = [("sampled", 1.0), ("sampled", 0.1), ("fitted", 1e-2)]
    tried += [("purest", 1e-2), ("purest", 1e-3)]
    rows = []
    for group, degrees in _NETWORKS:
        for family, tolerance in tried:
            cells = [_network_errors(group, degrees, family, tolerance, bias) for bias in (None, -0.1, -0.5)]
            totals = [" / ".join(f"{error.total:.1e}" for error in cell) for cell in cells]
            rows.append([_grid_name(group), f"below {degrees}", family, f"{tolerance:g}", *totals])
    return markdown(
        ["grid", "degrees", "family", "tolerance", "two convolutions", "NormReLU, b = -0.1", "b = -0.5"], rows
    )


def degrees_of_networks() -> str:
    """The same errors, degree by degree."""
    rows = []
    for group, degrees in _NETWORKS:
        for family in FAMILIES:
            error = _network_errors(group, degrees, family, 1e-2 if family != "sampled" else 0.1, None)[0]
            cells = [f"{error.per_degree[d]:.0e} ({error.energy[d]:.1%})" for d in error.per_degree]
            rows.append([_grid_name(group), family, *cells, *[""] * (8 - len(cells))])
    return markdown(["grid", "family", *range(8)], rows)


@cache
def _network_errors(
    group: Group, degrees: int, family: Family, tolerance: float, bias: float | None
) -> list[EquivarianceError]:
    """At 17 and 45 degrees in the plane; over random rotations in space. Four draws of the weights."""
    kernels = _kernels(group, family, tolerance)
    nets = [two_convolutions(kernels, degrees, bias=bias, seed=seed) for seed in range(4)]
    angles = [[group.rotation(math.radians(angle))] for angle in (17, 45)] if group.dim == 2 else None
    return [per_degree_errors(nets, turns, kernels) for turns in angles or [usual_rotations(group)[:2]]]


def anisotropy() -> str:
    """Voxels of 1 x 1 x 3: knowing the spacing against ignoring it."""
    rows = []
    for family in FAMILIES:
        kernels = VoxelKernels(SO3, (5, 5, 5), spacing=(1.0, 1.0, 3.0), family=family, tolerance=1.0)
        for degree in (0, 1, 2):
            known = min(kernel.error for kernel in single_kernel_errors(kernels, degree, usual_rotations(SO3)))
            ignored = min(spacing_ignored_errors(kernels, degree, usual_rotations(SO3)))
            rows.append([family, degree, f"{known:.1e}", f"{ignored:.1e}", f"{ignored / known:.1f}"])
    return markdown(["family", "degree", "spacing known", "spacing ignored", "ratio"], rows)


def markdown(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _kernels(group: Group, family: Family, tolerance: float = 1e-2) -> VoxelKernels:
    return VoxelKernels(group, (5,) * group.dim, family=family, tolerance=tolerance)


def _grid_name(group: Group) -> str:
    return "x".join(["5"] * group.dim)


_NETWORKS = ((SO2, 4), (SO2, 8), (SO3, 4))
_SECTIONS = {
    "single_kernels": single_kernels,
    "counts_and_reach": counts_and_reach,
    "networks": networks,
    "degrees_of_networks": degrees_of_networks,
    "anisotropy": anisotropy,
}

_PAGE = """<!-- Written by `make docs` (`steerformer reproduce kernels`): change the program, not this page. -->
# Kernels that know the grid

A steerable kernel is a radial profile times a harmonic. On voxels one has only samples of it, and samples alias: on a
5x5 grid a ring of frequency 3 also answers to frequency -1, and the smoother an image is, the more of that it has: on
blobs of sigma 2 most of the response turns the wrong way. The *purity* of a voxel kernel is the share of its response
that turns rightly, over signals of a stated power spectrum (here white noise smoothed by 1 voxel);
[theory.md](theory.md) derives it. There are three families:

- **sampled**: Gaussian rings times a harmonic, taken at voxel centers;
- **fitted**: voxel kernels that respond most nearly as the continuous rings do;
- **purest**: voxel kernels of the largest purity.

All three are exact under the grid's own rotations. What follows is measured at other angles, without any interpolation:
scenes are formulas (Gaussian blobs), turned first and sampled then, and responses are compared at the center.

![kernels on 5x5](images/kernels_2d.png)

![kernels on 5x5x5, central slices](images/kernels_3d.png)

![impurity by degree and size](images/purity.png)

## One kernel alone

Relative error of the best ring and of the first purest kernel, 128 scenes: 5x5 at 17 degrees on blobs of sigma 2,
5x5x5 over eight random rotations on blobs of sigma 1.5.

{single_kernels}

## How many there are, and how far they see

Root-mean-square radius, in voxels, of each kernel whose impurity is at most 1e-2. Purity is not all: the purest kernels
are concerned with the middle of the window, where the outer ring looks at its edge.

{counts_and_reach}

## Two convolutions

An image through two convolutions with random complex weights, unit-norm kernels, 4 copies of each degree, without and
with a NormReLU between; root mean square over 4 draws of the weights, 128 scenes. In the plane at 17 / 45 degrees
(blobs of sigma 2), in space at two random rotations (sigma 1.5). A tolerance of 1 keeps every ring, whatever it does.
The harder the nonlinearity cuts, the more of what it makes is too fine for the grid, and that no kernel can mend.

{networks}

Errors hide where there is little energy, so here they are degree by degree, with the share of the energy that the
degree carries (17 degrees in the plane, no nonlinearity; tolerance 0.1 for sampled rings, 0.01 for the others).

{degrees_of_networks}

## Voxels that are not cubes

Voxels of 1 x 1 x 3, kernels of 5x5x5 voxels, blobs of sigma 4.5 turned in physical space, best kernel of each degree.
An error near 1 means that a kernel is of no use: sampled rings of degree 1 and 2 are none on such voxels, whether or
not they know the spacing, and the default tolerance drops them.

{anisotropy}
"""
