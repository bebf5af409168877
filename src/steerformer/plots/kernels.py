"""Figures of kernels and positional encodings."""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from steerformer.fields import voxel_coordinates
from steerformer.groups import SO2, SO3, Group
from steerformer.kernels import FAMILIES, VoxelKernels

_COLORS = {"sampled": "#b0413e", "fitted": "#3a6ea5", "purest": "#2e7d4f"}


def draw_kernels(group: Group, path: Path, *, degrees: int = 5) -> None:
    """Two 5-wide kernels of each degree and family, with its impurity: the non-equivariant share of the response."""
    columns = [(family, place) for family in FAMILIES for place in range(2)]
    figure = Figure(figsize=(1.45 * len(columns), 1.62 * degrees + 0.5), layout="constrained")
    axes = figure.subplots(degrees, len(columns), squeeze=False)
    for row in range(degrees):
        order = group.irrep_dim(row) - 1  # one that does not vanish in the central slice
        for column, (family, place) in enumerate(columns):
            kernels = VoxelKernels(group, (5,) * group.dim, family=family, max_impurity=1.0)
            values, purity = kernels.functions(row)[:2]
            choice = place if family == "purest" else place - 2  # the two purest; the two outer rings
            _draw_kernel(axes[row, column], _slice(values[choice], order), 1 - purity[choice].item())
        axes[row, 0].set_ylabel(f"degree {row}")
    for column, (family, _) in enumerate(columns):
        axes[0, column].set_title(f"{family}\n{axes[0, column].get_title()}", fontsize=8)
    figure.savefig(path, dpi=110)


def draw_purity(path: Path, *, degrees: int = 7) -> None:
    """Impurity of the best kernel of each degree, by family and kernel size, in the plane and in space."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, group in zip(figure.subplots(1, 2, sharey=True), (SO2, SO3), strict=True):
        for family in FAMILIES:
            for size, style in ((3, ":"), (5, "--"), (7, "-")):
                kernels = VoxelKernels(group, (size,) * group.dim, family=family, max_impurity=1.0)
                best = [1 - kernels.functions(J).purity.max().item() for J in range(degrees)]
                axes.semilogy(range(degrees), best, style, color=_COLORS[family], label=f"{family}, size {size}")
        axes.axhline(1e-2, color="gray", linewidth=0.6)
        axes.set(xlabel="degree", title=f"{group.dim}D", ylim=(1e-9, 1.5))
        axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="lower right")
    figure.axes[0].set_ylabel("1 - purity of the best kernel")
    figure.savefig(path, dpi=110)


def _draw_kernel(axes: Axes, image: Tensor, impurity: float) -> None:
    limit = image.abs().max().item()
    axes.imshow(np.asarray(image), cmap=matplotlib.colormaps["RdBu_r"], vmin=-limit, vmax=limit)
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"{impurity:.0e}", fontsize=8)


def _slice(kernel: Tensor, order: int) -> Tensor:
    """Real part of one order of a kernel ``(order, *size)``; of a volume, the central slice along the second axis."""
    image = torch.real(kernel[order]) if kernel.is_complex() else kernel[order]
    return image if image.ndim == 2 else image.select(1, image.shape[1] // 2)


def draw_encodings(path: Path, *, degrees: int = 5, reach: int = 4) -> None:
    """Real parts of positional encodings in the plane around the central voxel, by profile."""
    from steerformer.nn.position import inverse_square, soft_inverse_square, steerable_basis

    points = voxel_coordinates((2 * reach + 1,) * SO2.dim)
    figure = Figure(figsize=(1.6 * degrees, 3.6), layout="constrained")
    axes = figure.subplots(2, degrees)
    for row, (name, profile) in enumerate({"paper": inverse_square, "soft": soft_inverse_square}.items()):
        values = steerable_basis(SO2, range(degrees), profile, points)
        for degree in range(degrees):
            image = values[..., degree]
            axes[row, degree].imshow(np.asarray(image), cmap=matplotlib.colormaps["RdBu_r"], vmin=-1, vmax=1)
            axes[row, degree].set(xticks=[], yticks=[], title=f"degree {degree}" if row == 0 else "")
        axes[row, 0].set_ylabel(name)
    figure.savefig(path, dpi=110)
