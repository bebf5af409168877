"""Equivariance errors of one and two convolutions, of each degree, in steerformer and in escnn."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from escnn_layers import Stack, escnn_stack, field_types, our_stack
from steerformer.groups import SO2, SO3, Group
from steerformer.kernels import Family
from steerformer.testing import blobs

COPIES = (4, 4, 4)
SCENES, SEEDS = 64, 8
FAMILIES: tuple[tuple[Family, float], ...] = (("fitted", 1e-2), ("fitted", 1e-3), ("purest", 1e-2), ("sampled", 1e-1))
CASES = ((1, 5), (2, 5), (2, 7))
"""Number of convolutions and kernel size."""
Make = Callable[..., Stack]


def measure() -> Iterator[dict[str, Any]]:
    """One row for each group, number of convolutions, kernel size and kind of kernels."""
    kinds: dict[str, Make] = {"escnn, default": escnn_stack}
    for family, impurity in FAMILIES:
        kinds[f"{family}, max_impurity {impurity:g}"] = partial(our_stack, family=family, max_impurity=impurity)
    for group in (SO2, SO3):
        for depth, size in CASES:
            for kind, make in kinds.items():
                *degrees, total = (float(f"{error:.3g}") for error in relative_errors(group, make, depth, size))
                row = {"dim": group.dim, "depth": depth, "kernel_size": size, "kernels": kind}
                yield row | {"degrees": degrees, "total": total}


def errors_on_the_grid() -> dict[str, float]:
    """Largest error of one convolution in each library under all rotations by 90 degrees: rounding errors only.

    It would be large if the coordinates of the libraries were confused.
    """
    return {
        library: float(f"{max(_grid_errors(make)):.2g}")
        for library, make in (("steerformer", our_stack), ("escnn", escnn_stack))
    }


def _grid_errors(make: Make) -> Iterator[float]:
    for group in (SO2, SO3):
        for R in group.grid_rotations():
            yield relative_errors(group, make, 1, 5, seeds=1, rotation=R.double())[-1]


def relative_errors(
    group: Group, make: Make, depth: int, size: int, *, seeds: int = SEEDS, rotation: Tensor | None = None
) -> list[float]:
    """Root mean square over draws of weights and rotations of the error of each degree, and of all together.

    The grid is as large as the convolutions see, without padding: the output is the response at its center.
    """
    squares = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        R = group.random_rotation() if rotation is None else rotation
        types = field_types(group, COPIES, depth)
        stack = make(types, kernel_size=size, same=False)
        stack.module.double().eval()
        scene = blobs(types[0], batch=SCENES, sigma=2.0, seed=seed)
        with torch.no_grad():
            grid = depth * (size - 1) + 1
            original, rotated = (
                stack.split(stack.apply(shown.sample(grid)).flatten(1)) for shown in (scene, scene.rotate(R))
            )
        squares.append(_squared_errors(original, rotated, stack.matrices(R)))
    return [math.sqrt(fmean(values)) for values in zip(*squares, strict=True)]


def _squared_errors(original: Sequence[Tensor], rotated: Sequence[Tensor], matrices: Sequence[Tensor]) -> list[float]:
    wrong = [(y - x @ m.mT).square().sum() for x, y, m in zip(original, rotated, matrices, strict=True)]
    energy = [x.square().sum() for x in original]
    return [*(float(a / b) for a, b in zip(wrong, energy, strict=True)), float(sum(wrong) / sum(energy))]
