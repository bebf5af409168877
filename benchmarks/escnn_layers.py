"""Convolutions of the same real representations in steerformer and in escnn, 2D and 3D.

A complex field of steerformer is a real representation of its channels. escnn has real irreps: in 2D the complex copies
of a degree above 0 are as many real irreps of two channels; copies of degree 0, and all copies in 3D, are two each. A
real field of steerformer, which it has in 3D only, has as many copies of the same real irreps as in escnn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from escnn import gspaces
from escnn import nn as enn
from escnn.group import GroupElement
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import Group
from steerformer.kernels import Family
from steerformer.nn import Conv

ESCNN_AXES = {
    2: torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64),
    3: torch.tensor([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64),
}
"""escnn's coordinates (x, y, z) from those along the axes of the tensor: x along the last axis, others opposite."""


@dataclass(frozen=True)
class Stack:
    """Convolutions in a row, and what rotations do to the channels of each degree of their output."""

    module: nn.Module
    apply: Callable[[Tensor], Tensor]
    split: Callable[[Tensor], Sequence[Tensor]]
    """Channels ``(batch, channels)`` of one position, degree by degree."""
    matrices: Callable[[Tensor], Sequence[Tensor]]
    """The matrix of a rotation for each degree."""


def field_types(
    group: Group, copies: tuple[int, ...], depth: int, *, image: bool = True, real: bool = False
) -> list[FieldType]:
    """An image, or features, and ``depth`` times features; real features have twice the copies, so as many channels."""
    features = FieldType(group, [2 * count for count in copies] if real else copies, real=real)
    return [FieldType.image(group, 1) if image else features, *[features] * depth]


def our_stack(
    types: Sequence[FieldType], *, kernel_size: int, same: bool, family: Family = "fitted", max_impurity: float = 1e-2
) -> Stack:
    """Convolutions of steerformer; ``same`` keeps the grid, else it shrinks by the kernel."""
    net = nn.Sequential(
        *(
            Conv(
                *pair,
                kernel_size=kernel_size,
                padding="same" if same else 0,
                kernel_family=family,
                max_impurity=max_impurity,
            )
            for pair in pairwise(types)
        )
    )
    out = types[-1]
    single = [FieldType(out.group, {degree: out.multiplicity(degree)}) for degree in out.degrees]
    return Stack(
        net,
        net,
        lambda y: [piece.flatten(1) for piece in out.split(y)],
        lambda R: [field_type.matrix(R) for field_type in single],
    )


def escnn_stack(types: Sequence[FieldType], *, kernel_size: int, same: bool) -> Stack:
    """Convolutions of escnn with its default basis, without bias, between the same representations."""
    group, out = types[0].group, types[-1]
    space = _escnn_space(group, max_degree=max(out.degrees))
    irreps = {degree: [space.fibergroup.irrep(degree)] * _real_copies(out, degree) for degree in out.degrees}
    fields = {field_type: _escnn_type(space, field_type) for field_type in set(types)}
    conv = enn.R2Conv if group.dim == 2 else enn.R3Conv
    options = {"kernel_size": kernel_size, "padding": kernel_size // 2 if same else 0, "bias": False}
    net = enn.SequentialModule(*(conv(fields[a], fields[b], **options) for a, b in pairwise(types)))
    sizes = [sum(irrep.size for irrep in copies) for copies in irreps.values()]
    return Stack(
        net,
        lambda x: net(fields[types[0]](x)).tensor,
        lambda y: y.split(sizes, dim=1),
        lambda R: [_matrix(copies, _escnn_element(space, R)) for copies in irreps.values()],
    )


def _escnn_space(group: Group, max_degree: int) -> gspaces.GSpace:
    if group.dim == 2:
        return gspaces.rot2dOnR2(N=-1, maximum_frequency=max_degree)
    return gspaces.rot3dOnR3(maximum_frequency=max_degree)


def _escnn_type(space: gspaces.GSpace, field_type: FieldType) -> enn.FieldType:
    copies = [(degree, _real_copies(field_type, degree)) for degree in field_type.degrees]
    return space.type(*(space.fibergroup.irrep(degree) for degree, count in copies for _ in range(count)))


def _real_copies(field_type: FieldType, degree: int) -> int:
    """Real irreps in the complex copies of a degree."""
    is_one_irrep = field_type.group.dim == 2 and degree > 0
    return field_type.multiplicity(degree) * (1 if is_one_irrep else field_type.parts)


def _escnn_element(space: gspaces.GSpace, R: Tensor) -> GroupElement:
    axes = ESCNN_AXES[len(R)]
    rotation = (axes @ R @ axes.mT).numpy()
    if len(R) == 2:
        return space.fibergroup.element(float(np.arctan2(rotation[1, 0], rotation[0, 0])))
    return space.fibergroup.element(rotation, param="MAT")


def _matrix(irreps: Sequence[Callable[[GroupElement], np.ndarray]], element: GroupElement) -> Tensor:
    return torch.block_diag(*(torch.from_numpy(np.atleast_2d(irrep(element))) for irrep in irreps)).double()
