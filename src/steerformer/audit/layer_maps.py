"""Inputs and outputs of all layers for analytic scenes, known between voxels.

Rotations map voxels between voxels. Coarse maps have too few voxels to interpolate them, so their values between voxels
come from scenes that are shifted by fractions of a voxel; the finer map that these form together is interpolated.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.audit.layers import output_type
from steerformer.audit.splines import rotated_values
from steerformer.fields import FieldType
from steerformer.testing import Scene

_FINER = 2  # samples along each axis from one voxel of a coarse map to the next
_MOST_BYTES = 2**28  # of the maps that are held at once
Grid = tuple[int, ...]


@dataclass(frozen=True)
class LayerMap:
    """A map on a grid, with ``finer`` samples along each axis from one voxel to the next."""

    field_type: FieldType
    grid: Grid
    samples: Tensor
    finer: int

    def rotate(self, R: Float[Tensor, "dim dim"]) -> Tensor:
        """The rotated map, ``rho(R) f(R^-1 x)``, at all voxels of the grid."""
        if not self.grid:
            return self.field_type.rotate(self.samples, R)
        values = rotated_values(self.samples, R, self.grid, self.finer)
        rotated = self.field_type.rotate(values.mT.flatten(0, 1), R)
        return rotated.unflatten(0, (len(values), -1)).mT.unflatten(2, self.grid)


@dataclass(frozen=True)
class LayerCall:
    """What is kept of the input and the output of a module; no input if there are several."""

    input: Any
    output: Any

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Names and values of those that are there."""
        return ((name, value) for name, value in vars(self).items() if value is not None)


class ScenePasses:
    """Forward passes of scenes through a model.

    Args:
        model: in eval mode.
        size: grid on which scenes are sampled.
        scene: an upright scene, on which the strides of all maps are found.
        like: dtype and device of the model; those of the scene if not given.
    """

    def __init__(self, model: nn.Module, size: Sequence[int], scene: Scene, like: Tensor | None = None) -> None:
        self.model, self.size, self.scene, self.like = model, tuple(size), scene, like
        self.modules = {name: module for name, module in model.named_modules() if output_type(module)}
        self._window_strides: dict[nn.Module, int] = {}
        self.shapes = self.run(scene, self.modules, keep=lambda y: tuple(y.shape))
        self.strides = self._find_strides()
        windowed = {name: module for name, module in self.modules.items() if hasattr(module, "window_center")}
        self._window_strides = {
            module: self.strides[self.shapes[name].output[2:]]
            for name, module in windowed.items()
            if name in self.shapes
        }

    def batches(self) -> list[list[str]]:
        """Names of all modules in execution order, in batches whose maps fit into memory together."""
        batches, size = list[list[str]](), 0
        for name, call in self.shapes.items():
            own = sum(4 * torch.Size(shape).numel() * _FINER ** (len(shape) - 2) for _, shape in call.parts())
            if not batches or size + own > _MOST_BYTES:
                batches.append([])
                size = 0
            batches[-1].append(name)
            size += own
        return batches

    def run(
        self,
        scene: Scene,
        names: Sequence[str] | dict[str, Any],
        *,
        shift: Sequence[float] | None = None,
        keep: Callable[[Tensor], Any] = lambda y: y,
    ) -> dict[str, LayerCall]:
        """Inputs and outputs of these modules; a scene that is shifted against the grid takes windows with it."""
        if shift is not None:
            scene = replace(scene, centers=scene.centers - torch.tensor(shift).to(scene.centers))
        x, found = scene.sample(self.size), dict[str, LayerCall]()

        def look(module: nn.Module, given: tuple[Any, ...], options: dict[str, Any], output: Any, *, name: str) -> None:
            out_type, in_type = output_type(module), getattr(module, "in_type", None)
            if not (out_type and isinstance(output, Tensor) and output.ndim in (2, 2 + out_type.group.dim)):
                return
            inputs = [value for value in (*given, *options.values()) if value is not None]
            is_single = len(inputs) == 1 and isinstance(in_type, FieldType) and inputs[0].shape[1] == in_type.channels
            found.pop(name, None)  # a module that runs twice is measured the last time
            found[name] = LayerCall(keep(inputs[0]) if is_single else None, keep(output))

        handles = [
            self.modules[name].register_forward_hook(partial(look, name=name), with_kwargs=True) for name in names
        ]
        with self._windows_at(shift):
            run_with_hooks(self.model, x if self.like is None else x.to(self.like), handles)
        return found

    def upright(self, names: Sequence[str]) -> dict[str, tuple[LayerMap | None, LayerMap]]:
        """Input and output of these modules for the upright scene."""
        maps: dict[tuple[str, str], LayerMap] = {}
        wanted = [(name, part, shape[2:]) for name in names for part, shape in self.shapes[name].parts()]
        for stride in sorted({self.strides[grid] for *_, grid in wanted}):
            finer = _FINER if stride > 1 else 1  # scenes are smooth on the grid of the input
            shifted = {
                places: self.run(self.scene, names, shift=[place * stride / finer for place in places])
                for places in product(range(finer), repeat=len(self.size))
            }
            for name, part, grid in wanted:
                if self.strides[grid] == stride:
                    parts = {places: getattr(calls[name], part) for places, calls in shifted.items()}
                    field_type = getattr(self.modules[name], "in_type" if part == "input" else "out_type")
                    maps[name, part] = LayerMap(field_type, grid, _interleaved(parts, finer), finer)
        return {name: (maps.get((name, "input")), maps[name, "output"]) for name in names}

    def _find_strides(self) -> dict[Grid, int]:
        """Voxels of the input per voxel of each grid; 1 where there is nothing to interpolate."""
        examples = {shape[2:]: name for name, call in self.shapes.items() for _, shape in call.parts()}
        outputs = {call.output[2:]: name for name, call in reversed(self.shapes.items())}
        return {grid: self._stride(grid, outputs.get(grid)) if grid and max(grid) > 1 else 1 for grid in examples}

    def _stride(self, grid: Grid, name: str | None) -> int:
        """The shift of the scene that moves a map by one voxel, among those that fit the size of its grid."""
        n, m = self.size[0], grid[0]
        fitting = [s for s in range(1, n + 1) if m in (n // s, -(-n // s))]
        candidates = fitting if 1 in fitting or 2 * m < n else [1, *fitting]  # 1: an unpadded convolution
        if len(candidates) == 1 or name is None:
            return candidates[0]
        y = self.run(self.scene, [name])[name].output

        def mismatch(stride: int) -> float:
            moved = self.run(self.scene, [name], shift=[float(stride)] + [0.0] * (len(grid) - 1))[name].output
            return float((moved[:, :, :-1] - y[:, :, 1:]).norm())

        return min(candidates, key=mismatch)

    @contextmanager
    def _windows_at(self, shift: Sequence[float] | None) -> Iterator[None]:
        """Windows whose centers follow a shifted scene."""
        try:
            for module, stride in self._window_strides.items():
                center = None if shift is None else tuple(-step / stride for step in shift)
                module.window_center = center  # type: ignore[assignment]
            yield
        finally:
            for module in self._window_strides:
                module.window_center = None  # type: ignore[assignment]


def _interleaved(maps: dict[tuple[int, ...], Tensor], finer: int) -> Tensor:
    """One map of the samples of all shifts."""
    first = next(iter(maps.values()))
    if len(maps) == 1 or first.ndim == 2:
        return first
    whole = first.new_empty(*first.shape[:2], *(finer * (n - 1) + 1 for n in first.shape[2:]))
    for places, y in maps.items():
        target = whole[(slice(None), slice(None), *(slice(place, None, finer) for place in places))]
        target.copy_(y[(slice(None), slice(None), *(slice(n) for n in target.shape[2:]))])  # none behind the last voxel
    return whole
