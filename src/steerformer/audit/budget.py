"""Error budget at arbitrary angles: how much equivariance error each layer of a model adds, on smooth scenes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.layer_maps import LayerCall, LayerMap, ScenePasses
from steerformer.fields import FieldType, voxel_coordinates
from steerformer.testing import Scene


@dataclass(frozen=True)
class DegreeBudget:
    """The part of one degree in the budget of a layer; errors are relative to the energy of this degree."""

    energy: float
    """Share of the output's energy: errors of degrees with little energy matter little."""
    total: float
    added: float | None


@dataclass(frozen=True)
class LayerBudget:
    r"""Equivariance error of a layer at arbitrary angles, over all voxels that rotations keep in the grid."""

    name: str
    kind: str
    field_type: str
    grid: tuple[int, ...]
    total: float
    r"""$\|f(Rx) - R f(x)\| / \|f(x)\|$, including all layers before it."""
    added: float | None
    """The error of the layer alone: its input is the upright one, rotated as it should be. ``None`` for layers with
    several inputs."""
    degrees: dict[int, DegreeBudget]


def error_budget(
    model: nn.Module,
    scene: Scene,
    size: Sequence[int],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    like: Tensor | None = None,
) -> list[LayerBudget]:
    """Errors of all modules with an ``out_type``, in execution order, over all rotations together.

    Grids of two voxels are left out: rotations keep none of their voxels in the grid.

    Args:
        model: in eval mode.
        scene: of the type of the model's input.
        size: grid on which scenes are sampled.
        rotations: at any angles.
        like: dtype and device of the model; those of the scene by default.
    """
    passes = ScenePasses(model, size, scene, like)
    found = []
    for names in passes.batches():
        upright = passes.upright(names)
        energies = [
            _energies_of_rotation(R, upright, passes.run(scene.rotate(R), names), passes.modules) for R in rotations
        ]
        for name, (_, after) in upright.items():
            total = torch.stack([of_rotation[name] for of_rotation in energies]).sum(0)
            if _has_inside(after.grid):
                found.append(_budget(name, passes.modules[name], after, total))
    return found


def _energies_of_rotation(
    R: Tensor,
    upright: dict[str, tuple[LayerMap | None, LayerMap]],
    rotated: dict[str, LayerCall],
    modules: dict[str, nn.Module],
) -> dict[str, Tensor]:
    """Energies ``(degree, 3)`` of each module; see :func:`_energies`."""
    found = {}
    for name, (before, after) in upright.items():
        alone = None
        if before is not None:
            with torch.no_grad():
                alone = modules[name](before.rotate(R))
        found[name] = _energies(after.field_type, after.rotate(R), rotated[name].output, alone)
    return found


def _energies(field_type: FieldType, ideal: Tensor, found: Tensor, alone: Tensor | None) -> Tensor:
    """Energies ``(degree, 3)`` of the ideal map, of its difference to the found one, and to that of the layer alone."""
    missing = torch.full_like(ideal, torch.nan)
    maps = [ideal, found - ideal, missing if alone is None else alone - ideal]
    if ideal.ndim > 2:
        inside = _inside(tuple(ideal.shape[2:])).to(ideal.device)
        maps = [y.flatten(2)[..., inside] for y in maps]
    pieces = [[piece.double().square().sum().cpu() for piece in field_type.split(y)] for y in maps]
    return torch.tensor(pieces, dtype=torch.float64).mT


def _inside(grid: tuple[int, ...]) -> Tensor:
    """Voxels that every rotation keeps in the grid."""
    points = voxel_coordinates(grid).flatten(0, -2)
    return points.norm(dim=1) <= (min(grid) - 1) / 2 + 1e-6


def _has_inside(grid: tuple[int, ...]) -> bool:
    return not grid or bool(_inside(grid).any())


def _budget(name: str, module: nn.Module, after: LayerMap, energies: Tensor) -> LayerBudget:
    total, added = _relative(energies.sum(0))
    whole = float(energies[:, 0].sum())
    degrees = {
        degree: DegreeBudget(float(row[0]) / whole if whole else 0.0, *_relative(row))
        for degree, row in zip(after.field_type.degrees, energies, strict=True)
    }
    return LayerBudget(
        name or "logits", type(module).__name__, str(after.field_type), after.grid, total, added, degrees
    )


def _relative(energies: Tensor) -> tuple[float, float | None]:
    """Errors relative to the ideal map; an error where the map is zero counts as 1."""
    size, total, added = energies.tolist()

    def ratio(error: float) -> float:
        return (error / size) ** 0.5 if size else float(error > 0)

    return ratio(total), None if added != added else ratio(added)
