"""Write docs/kernels.md and its figures: equivariance errors of kernel families on a voxel grid."""

import argparse
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kernel_errors import (
    default_rotations,
    per_degree_errors,
    single_kernel_errors,
    spacing_ignored_errors,
    two_convolutions,
)
from steerformer.groups import SO2, SO3, Group
from steerformer.kernels import FAMILIES, Family, VoxelKernels
from steerformer.reproduce.markdown import markdown_table
from steerformer.testing import EquivarianceError

DEGREES = (1, 2, 3, 4)


def write_page(folder: Path, progress: Callable[[str], None] = lambda step: None) -> Path:
    """Measure, draw and write the page; returns its path."""
    from steerformer.plots.kernels import draw_kernels, draw_purity

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("docs"), help="folder for the page and its figures (default: docs)"
    )
    print(f"wrote {write_page(parser.parse_args().out, progress=print)}")


def single_kernels() -> str:
    """Equivariance error of the best single kernel of each family, by degree."""
    rows = []
    for group in (SO2, SO3):
        for degree in DEGREES:
            best = {family: best_kernel_error(group, family, degree) for family in FAMILIES}
            ratio = best["sampled"] / best["purest"]
            rows.append([_grid_name(group), degree, *(f"{best[family]:.1e}" for family in FAMILIES), f"{ratio:.1f}"])
    return markdown_table(["grid", "degree", *(f"{family}" for family in FAMILIES), "sampled / purest"], rows)


def best_kernel_error(group: Group, family: Family, degree: int) -> float:
    """Error of the best ring, or of the first purest kernel."""
    found = single_kernel_errors(_kernels(group, family, max_impurity=1.0), degree, default_rotations(group))
    # purest kernels are sorted by purity: the first one, not the one with the smallest error
    return found[0].error if family == "purest" else min(kernel.error for kernel in found)


def counts_and_radii() -> str:
    """Radii of the kernels of small impurity."""
    rows = []
    for group in (SO2, SO3):
        for family in FAMILIES:
            cells = []
            for degree in range(6):
                kernels = single_kernel_errors(_kernels(group, family), degree, default_rotations(group)[:1])
                cells.append(", ".join(f"{kernel.radius:.1f}" for kernel in kernels) or "none")
            rows.append([_grid_name(group), family, *cells])
    return markdown_table(["grid", "family", *(f"degree {degree}" for degree in range(6))], rows)


def networks() -> str:
    """Two convolutions with random weights, with and without a nonlinearity between them."""
    tried: list[tuple[Family, float]] = [("sampled", 1.0), ("sampled", 0.1), ("fitted", 1e-2)]
    tried += [("purest", 1e-2), ("purest", 1e-3)]
    rows = []
    for group, degrees in _NETWORKS:
        for family, max_impurity in tried:
            cells = [_network_errors(group, degrees, family, max_impurity, bias) for bias in (None, -0.1, -0.5)]
            totals = [" / ".join(f"{error.total:.1e}" for error in cell) for cell in cells]
            rows.append([_grid_name(group), f"below {degrees}", family, f"{max_impurity:g}", *totals])
    return markdown_table(
        ["grid", "degrees", "family", "max_impurity", "two convolutions", "NormReLU, b = -0.1", "b = -0.5"], rows
    )


def degrees_of_networks() -> str:
    """The same errors by degree."""
    rows = []
    for group, degrees in _NETWORKS:
        for family in FAMILIES:
            error = _network_errors(group, degrees, family, 1e-2 if family != "sampled" else 0.1, None)[0]
            cells = [f"{error.per_degree[d]:.0e} ({error.energy[d]:.1%})" for d in error.per_degree]
            rows.append([_grid_name(group), family, *cells, *[""] * (8 - len(cells))])
    return markdown_table(["grid", "family", *range(8)], rows)


@cache
def _network_errors(
    group: Group, degrees: int, family: Family, max_impurity: float, bias: float | None
) -> list[EquivarianceError]:
    """At 17 and 45 degrees in 2D, over two random rotations in 3D; four draws of the weights."""
    kernels = _kernels(group, family, max_impurity)
    nets = [two_convolutions(kernels, degrees, bias=bias, seed=seed) for seed in range(4)]
    angles = [[group.rotation(math.radians(angle))] for angle in (17, 45)] if group.dim == 2 else None
    return [per_degree_errors(nets, rotations, kernels) for rotations in angles or [default_rotations(group)[:2]]]


def anisotropy() -> str:
    """Anisotropic voxels, 1 x 1 x 3: kernels that take the spacing into account and kernels that ignore it."""
    rows = []
    for family in FAMILIES:
        kernels = VoxelKernels(SO3, (5, 5, 5), spacing=(1.0, 1.0, 3.0), family=family, max_impurity=1.0)
        for degree in (0, 1, 2):
            aware = min(kernel.error for kernel in single_kernel_errors(kernels, degree, default_rotations(SO3)))
            ignored = min(spacing_ignored_errors(kernels, degree, default_rotations(SO3)))
            rows.append([family, degree, f"{aware:.1e}", f"{ignored:.1e}", f"{ignored / aware:.1f}"])
    return markdown_table(["family", "degree", "with spacing", "spacing ignored", "ratio"], rows)


def _kernels(group: Group, family: Family, max_impurity: float = 1e-2) -> VoxelKernels:
    return VoxelKernels(group, (5,) * group.dim, family=family, max_impurity=max_impurity)


def _grid_name(group: Group) -> str:
    return "x".join(["5"] * group.dim)


_NETWORKS = ((SO2, 4), (SO2, 8), (SO3, 4))
_SECTIONS = {
    "single_kernels": single_kernels,
    "counts_and_radii": counts_and_radii,
    "networks": networks,
    "degrees_of_networks": degrees_of_networks,
    "anisotropy": anisotropy,
}

_PAGE = """<!-- Written by `python docs/programs/kernels.py` (`make docs`): change the program, not this page. -->
# Kernels that know the grid

A steerable kernel is a radial profile times a harmonic. Sampled on voxels it aliases: on a 5x5 grid a ring of frequency
3 also responds to frequency -1. The smoother an image, the larger this part: on blobs of sigma 2 it is most of the
response. The *purity* of a voxel kernel is the equivariant share of its response, over signals of a given power
spectrum (here white noise smoothed by 1 voxel); [theory.md](theory.md) derives it. There are three kernel families:

- **sampled**: Gaussian rings times a harmonic, sampled at voxel centers;
- **fitted**: voxel kernels whose response is closest to that of the continuous rings;
- **purest**: voxel kernels of the largest purity.

All three are exact under rotations of the grid. The errors below are measured at other angles, without interpolation:
scenes are analytic (Gaussian blobs) and rotated before they are sampled, and responses are compared at the center.

![Kernels on 5x5, with their impurity](images/kernels_2d.png)

![Kernels on 5x5x5, central slices, with their impurity](images/kernels_3d.png)

![Impurity by degree and kernel size](images/purity.png)

## Single kernels

Relative equivariance error of the best ring and of the first purest kernel, 128 scenes: 5x5 at 17 degrees on blobs of
sigma 2, 5x5x5 over eight random rotations on blobs of sigma 1.5.

{single_kernels}

## Number and radius of the kernels

Root-mean-square radius, in voxels, of each kernel whose impurity is at most 1e-2. Purity comes at a price: the purest
kernels concentrate in the middle of the window, while the outer ring covers its edge.

{counts_and_radii}

## Expected error of a convolution

Purity $\\lambda$ is a share of energy. The relative error of one kernel is $\\sqrt{{2(1-\\lambda)}}$, root mean square
over random rotations: `max_impurity=0.01` allows 14 % in amplitude. `Conv.expected_error`, printed with the layer, is
the error of each output degree that its paths have together. Initial weights are independent with mean zero, so
energies of paths add, and so do those of their errors. Couplings preserve norms, so each path has the purity
$\\lambda_p$ and the energy $T_p$ of its harmonic kernel:

$$\\varepsilon_\\ell^2 = \\frac{{\\sum_p e_p \\cdot 2(1-\\lambda_p)}}{{\\sum_p e_p}}, \\qquad
e_p = n_p\\, \\sigma_p^2\\, T_p,$$

with the multiplicity $n_p$ of the path's input degree and the variance $\\sigma_p^2$ of its initial weights
([theory.md](theory.md#initialization)). It is the error for signals of the layer's `spectrum`, with unit variance in
every channel, and for initial weights: training changes how much each path contributes, and signals with another
spectrum have other errors. Tests measure it on random fields of the spectrum; both agree within a factor of 1.5.

## Two convolutions

Relative equivariance error of two convolutions with random complex weights and unit-norm kernels, 4 copies of each
degree, without and with a NormReLU between them; root mean square over 4 draws of the weights and 128 scenes. In 2D at
17 / 45 degrees (blobs of sigma 2), in 3D at two random rotations (sigma 1.5). A `max_impurity` of 1 keeps every ring.
The more features the nonlinearity sets to zero, the finer the details it creates, which no kernel on this grid
resolves.

{networks}

The same error by degree, with the share of the energy in each degree, since the total hides errors of degrees with
little energy (17 degrees in 2D, no nonlinearity; `max_impurity` 0.1 for sampled kernels, 0.01 for the others).

{degrees_of_networks}

## Anisotropic voxels

Relative equivariance error of the best kernel of each degree: voxels of 1 x 1 x 3, kernels of 5x5x5 voxels, blobs of
sigma 4.5 rotated in physical space. An error near 1 means that a kernel is useless: sampled rings of degree 1 and 2
are, with and without the spacing, and the default `max_impurity` drops them.

{anisotropy}
"""


if __name__ == "__main__":
    main()
