"""Write docs/escnn.md: equivariance errors of one and two convolutions beside those of escnn.

Needs the package escnn, which is not among the dependencies of the project.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import torch
from escnn import gspaces
from escnn import nn as enn
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import SO2
from steerformer.kernels import Family
from steerformer.nn import Conv
from steerformer.reproduce.markdown import markdown_table
from steerformer.testing import blobs

ANGLE = math.radians(17)
DEGREES, COPIES, SCENES, SEEDS, SIZE = 3, 8, 64, 8, 21
FAMILIES: tuple[tuple[Family, float], ...] = (("fitted", 1e-2), ("fitted", 1e-3), ("purest", 1e-2), ("sampled", 1e-1))
Response = Callable[[Tensor], Tensor]
Stack = tuple[Response, Sequence[Tensor]]
"""The features at the center of the grid, and the matrix by which a rotation acts on them, for each degree."""


def write_escnn_page(folder: Path) -> Path:
    """Measure and write the page; returns its path."""
    kinds: dict[str, Callable[[int, int], Stack]] = {"escnn, default": _escnn_stack}
    for family, max_impurity in FAMILIES:
        kinds[f"{family}, max_impurity {max_impurity:g}"] = _stack_of(family, max_impurity)
    single = [[name, *(f"{error:.1e}" for error in _errors(make, 1, 5)[:-1])] for name, make in kinds.items()]
    double = [[name, *(f"{_errors(make, 2, size)[-1]:.1e}" for size in (5, 7))] for name, make in kinds.items()]
    path = folder / "escnn.md"
    path.write_text(f"""<!-- Written by `python docs/programs/escnn_errors.py`, which needs escnn. -->
# Comparison with escnn

Relative equivariance error at the center of the grid when smooth analytic scenes (Gaussian blobs of standard deviation
2) are rotated by 17 degrees: root mean square over {SEEDS} draws of the initial weights, each on {SCENES} scenes.
Convolutions have {COPIES} copies of each degree.

One convolution of an image, kernel size 5, by degree of the output:

{markdown_table(["kernels", *(f"degree {degree}" for degree in range(DEGREES))], single)}

Two convolutions, from an image to degrees 0 to 2 and again to degrees 0 to 2, all degrees together:

{markdown_table(["kernels", "kernel size 5", "kernel size 7"], double)}

The default, fitted with an impurity of at most 0.01, keeps the outer rings that a network needs to see its whole
window; its errors are larger than escnn's. With at most 0.001, which drops rings at size 5, and with
`kernel_family="purest"`, they are
smaller or about as large, except in degree 0 of fitted kernels, and for fitted kernels of size 7, of which none is
dropped. [kernel_families.md](kernel_families.md) has accuracy and errors of trained networks, on which the default
rests.
""")
    return path


def _errors(make: Callable[[int, int], Stack], depth: int, size: int) -> list[float]:
    """Error of each degree, and of all together."""
    R = SO2.rotation(ANGLE)
    squares = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        respond, matrices = make(depth, size)
        scene = blobs(FieldType.image(SO2, 1), batch=SCENES, sigma=2.0, seed=seed)
        with torch.no_grad():
            upright, rotated = (respond(shown.sample(SIZE)) for shown in (scene, scene.rotate(R)))
        pairs = list(
            zip(upright.split([len(m) for m in matrices], 1), rotated.split([len(m) for m in matrices], 1), strict=True)
        )
        wrong = [(y - x @ m.mT).square().sum() for (x, y), m in zip(pairs, matrices, strict=True)]
        energy = [x.square().sum() for x, _ in pairs]
        squares.append([*(float(a / b) for a, b in zip(wrong, energy, strict=True)), float(sum(wrong) / sum(energy))])
    return [math.sqrt(fmean(values)) for values in zip(*squares, strict=True)]


def _stack_of(family: Family, max_impurity: float) -> Callable[[int, int], Stack]:
    def make(depth: int, size: int) -> Stack:
        types = [FieldType.image(SO2, 1), *[FieldType(SO2, (COPIES,) * DEGREES)] * depth]
        net = nn.Sequential(
            *(Conv(a, b, kernel_size=size, kernel_family=family, max_impurity=max_impurity) for a, b in pairwise(types))
        ).double()
        single = [FieldType(SO2, [0] * degree + [COPIES]) for degree in range(DEGREES)]

        def respond(x: Tensor) -> Tensor:
            pieces = types[-1].split(net(x)[..., SIZE // 2, SIZE // 2])
            return torch.cat([piece.flatten(1) for piece in pieces], dim=1)

        return respond, [field_type.matrix(SO2.rotation(ANGLE)) for field_type in single]

    return make


def _escnn_stack(depth: int, size: int) -> Stack:
    space = gspaces.rot2dOnR2(N=-1, maximum_frequency=DEGREES)
    group = space.fibergroup
    irreps = [group.irrep(degree) for degree in range(DEGREES)]
    types = [
        enn.FieldType(space, [space.trivial_repr]),
        *[enn.FieldType(space, [irrep for irrep in irreps for _ in range(COPIES)])] * depth,
    ]
    layers = [enn.R2Conv(a, b, kernel_size=size, padding=size // 2, bias=False) for a, b in pairwise(types)]
    net = enn.SequentialModule(*layers).double().eval()

    def respond(x: Tensor) -> Tensor:
        features: Tensor = net(enn.GeometricTensor(x, types[0])).tensor
        return features[..., SIZE // 2, SIZE // 2]

    element = group.element(ANGLE)
    return respond, [torch.block_diag(*[torch.from_numpy(irrep(element))] * COPIES).double() for irrep in irreps]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page")
    print(f"wrote {write_escnn_page(parser.parse_args().out)}")
