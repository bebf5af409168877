"""Error budget at arbitrary angles: how much equivariance error each layer of a model adds, on smooth scenes.

Scenes are analytic, so no input is interpolated. Maps are compared at all voxels, so they have to be known between
voxels. Coarse maps have too few voxels for that: their values between voxels come from scenes that are shifted by
fractions of a voxel, and the finer map that these form together is interpolated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.audit.layers import output_type
from steerformer.audit.splines import values_at
from steerformer.fields import FieldType, voxel_coordinates
from steerformer.testing import Scene

_FINER = 2  # samples along each axis from one voxel of a coarse map to the next
_MOST_BYTES = 2**29  # of maps that are held at once


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


@dataclass(frozen=True)
class _Call:
    """Input and output of a module in one forward pass; no input if there are several."""

    input: Tensor | None
    output: Tensor


@dataclass(frozen=True)
class _Map:
    """A map on a grid, with ``finer`` samples along each axis from one voxel to the next."""

    field_type: FieldType
    grid: tuple[int, ...]
    samples: Tensor
    finer: int

    def rotate(self, R: Float[Tensor, "dim dim"]) -> Tensor:
        """The rotated map, ``rho(R) f(R^-1 x)``, at all voxels of the grid."""
        if not self.grid:
            return self.field_type.rotate(self.samples, R)
        points = voxel_coordinates(self.grid).flatten(0, -2) @ R.double()  # row vectors: R^-1 x
        values = values_at(self.samples, self.finer * points)
        rotated = self.field_type.rotate(values.mT.flatten(0, 1), R)
        return rotated.unflatten(0, (len(values), -1)).mT.unflatten(2, self.grid)


def error_budget(
    model: nn.Module,
    scene: Scene,
    size: Sequence[int],
    rotations: Sequence[Float[Tensor, "dim dim"]],
    *,
    like: Tensor | None = None,
) -> list[LayerBudget]:
    """Errors of all modules with an ``out_type``, in execution order, over all rotations together.

    Args:
        model: in eval mode.
        scene: of the type of the model's input.
        size: grid on which scenes are sampled.
        rotations: at any angles.
        like: dtype and device of the model; those of the scene by default.
    """

    def run(shown: Scene, names: Sequence[str]) -> dict[str, _Call]:
        x = shown.sample(size)
        return _calls(model, x if like is None else x.to(like), names)

    modules = {name: module for name, module in model.named_modules() if output_type(module)}
    found: dict[str, LayerBudget] = {}
    for names in _groups(run(scene, list(modules))):
        upright = _upright_maps(partial(run, names=names), scene, size, modules)
        energies = [_energies_of_rotation(R, upright, run(scene.rotate(R), names), modules) for R in rotations]
        for name, (_, after) in upright.items():
            total = torch.stack([of_rotation[name] for of_rotation in energies]).sum(0)
            found[name] = _budget(name, modules[name], after, total)
    return list(found.values())


def _groups(calls: dict[str, _Call]) -> list[list[str]]:
    """Names in execution order, in groups whose maps fit into memory together."""
    groups, size = list[list[str]](), 0
    for name, call in calls.items():
        own = sum(y.nbytes for y in vars(call).values() if isinstance(y, Tensor)) * _FINER ** max(
            call.output.ndim - 2, 0
        )
        if not groups or size + own > _MOST_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += own
    return groups


def _energies_of_rotation(
    R: Tensor,
    upright: dict[str, tuple[_Map | None, _Map]],
    rotated: dict[str, _Call],
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


def _upright_maps(
    run: Callable[[Scene], dict[str, _Call]], scene: Scene, size: Sequence[int], modules: dict[str, nn.Module]
) -> dict[str, tuple[_Map | None, _Map]]:
    """Input and output of each module for the upright scene, in execution order."""
    base = run(scene)
    maps: dict[tuple[str, str], _Map] = {}
    wanted = [(name, part, y) for name, call in base.items() for part, y in vars(call).items() if isinstance(y, Tensor)]
    for stride in sorted({_stride(y, size) for *_, y in wanted}):
        finer = _FINER if stride > 1 else 1  # scenes are smooth on the grid of the input
        shifted = {
            shift: run(_moved(scene, [place * stride / finer for place in shift]))
            for shift in product(range(finer), repeat=len(size))
        }
        for name, part, y in wanted:
            if _stride(y, size) == stride:
                parts = {shift: getattr(calls[name], part) for shift, calls in shifted.items()}
                field_type = getattr(modules[name], "in_type" if part == "input" else "out_type")
                maps[name, part] = _Map(field_type, tuple(y.shape[2:]), _interleaved(parts, finer), finer)
    return {name: (maps.get((name, "input")), maps[name, "output"]) for name in base}


def _stride(y: Tensor, size: Sequence[int]) -> int:
    """Voxels of the input per voxel of a map; 1 if there is nothing to interpolate: no space, or a single voxel."""
    return round(size[0] / y.shape[2]) if y.ndim > 2 and max(y.shape[2:]) > 1 else 1


def _moved(scene: Scene, offset: Sequence[float]) -> Scene:
    """The scene as seen from ``offset``."""
    return replace(scene, centers=scene.centers - torch.tensor(offset).to(scene.centers))


def _interleaved(maps: dict[tuple[int, ...], Tensor], finer: int) -> Tensor:
    """One map of the samples of all shifts."""
    first = next(iter(maps.values()))
    if len(maps) == 1 or first.ndim == 2:
        return first
    whole = first.new_empty(*first.shape[:2], *(finer * (n - 1) + 1 for n in first.shape[2:]))
    for shift, y in maps.items():
        target = whole[(slice(None), slice(None), *(slice(place, None, finer) for place in shift))]
        target.copy_(y[(slice(None), slice(None), *(slice(n) for n in target.shape[2:]))])  # none behind the last voxel
    return whole


def _calls(model: nn.Module, x: Tensor, names: Sequence[str]) -> dict[str, _Call]:
    """Inputs and outputs of these modules."""
    found: dict[str, _Call] = {}

    def look(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any, *, name: str) -> None:
        out_type, in_type = output_type(module), getattr(module, "in_type", None)
        if not (out_type and isinstance(output, Tensor) and output.ndim in (2, 2 + out_type.group.dim)):
            return
        given = [value for value in (*arguments, *options.values()) if value is not None]
        is_single = len(given) == 1 and isinstance(in_type, FieldType) and given[0].shape[1] == in_type.channels
        found.pop(name, None)  # a module that runs twice is measured the last time
        found[name] = _Call(given[0] if is_single else None, output)

    handles = [
        module.register_forward_hook(partial(look, name=name), with_kwargs=True)
        for name, module in model.named_modules()
        if name in names
    ]
    run_with_hooks(model, x, handles)
    return found


def _energies(field_type: FieldType, ideal: Tensor, found: Tensor, alone: Tensor | None) -> Tensor:
    """Energies ``(degree, 3)`` of the ideal map, of its difference to the found one, and to that of the layer alone."""
    missing = torch.full_like(ideal, torch.nan)
    maps = [ideal, found - ideal, missing if alone is None else alone - ideal]
    if ideal.ndim > 2:
        points = voxel_coordinates(ideal.shape[2:]).flatten(0, -2)
        inside = points.norm(dim=1) <= (min(ideal.shape[2:]) - 1) / 2 + 1e-6
        maps = [y.flatten(2)[..., inside.to(y.device)] for y in maps]
    pieces = [[piece.double().square().sum().cpu() for piece in field_type.split(y)] for y in maps]
    return torch.tensor(pieces, dtype=torch.float64).mT


def _budget(name: str, module: nn.Module, after: _Map, energies: Tensor) -> LayerBudget:
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
