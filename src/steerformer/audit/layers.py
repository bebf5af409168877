"""Equivariance error of every layer inside a model under rotations of the grid, which need no interpolation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.hooks import run_with_hooks
from steerformer.audit.rotations import input_type
from steerformer.fields import FieldType

Kept = TypeVar("Kept")
_MOST_POINTS = 500


@dataclass(frozen=True)
class LayerError:
    r"""Relative error $\|f(Rx) - R f(x)\| / \|f(x)\|$ of a layer's output, including all layers before it."""

    name: str
    kind: str
    field_type: str
    grid: tuple[int, ...]
    total: float
    per_degree: dict[int, float]


def layer_errors(
    model: nn.Module,
    upright: Float[Tensor, "batch channels *space"],
    rotated: Sequence[tuple[Float[Tensor, "dim dim"], Float[Tensor, "batch channels *space"]]],
) -> list[LayerError]:
    """Errors of all modules with an ``out_type``, in execution order, over all rotations together.

    At most 500 voxels of each map are compared, drawn at random. For other angles see
    :func:`~steerformer.audit.error_budget`.

    Args:
        model: in eval mode.
        upright: the input.
        rotated: rotations of the grid, each with the rotated input.
    """
    group = input_type(model).group
    if any(not group.is_grid_rotation(R) for R, _ in rotated):
        raise ValueError("layer_errors takes rotations of the grid; use error_budget for other angles.")
    expected = _outputs(model, upright, partial(_rotated_maps, rotations=[R for R, _ in rotated]))
    found = [_outputs(model, x, lambda out_type, y: _some_voxels(y)) for _, x in rotated]
    modules = dict(model.named_modules())
    return [
        _layer_error(name, modules[name], grid, list(zip(maps, (other[name] for other in found), strict=True)))
        for name, (grid, maps) in expected.items()
    ]


def output_type(module: nn.Module) -> FieldType | None:
    """The field type of a module's output, if it declares one."""
    out_type = getattr(module, "out_type", None)
    return out_type if isinstance(out_type, FieldType) else None


def _outputs(model: nn.Module, x: Tensor, keep: Callable[[FieldType, Tensor], Kept]) -> dict[str, Kept]:
    """Apply ``keep`` to the output of each module during the forward pass: whole maps would not fit into memory."""
    kept: dict[str, Kept] = {}

    def look(module: nn.Module, arguments: Any, output: Any, *, name: str) -> None:
        out_type = output_type(module)
        if out_type and isinstance(output, Tensor) and output.ndim in (2, 2 + out_type.group.dim):
            kept.pop(name, None)  # a module that runs twice is measured the last time
            kept[name] = keep(out_type, output)

    handles = [m.register_forward_hook(partial(look, name=name)) for name, m in model.named_modules() if output_type(m)]
    run_with_hooks(model, x, handles)
    return kept


def _rotated_maps(
    out_type: FieldType, y: Tensor, *, rotations: Sequence[Tensor]
) -> tuple[tuple[int, ...], list[Tensor]]:
    """The grid, and some voxels of the map after each rotation."""
    return tuple(y.shape[2:]), [_some_voxels(out_type.rotate(y, R)) for R in rotations]


def _some_voxels(y: Tensor) -> Tensor:
    """The same random voxels for each map of one grid."""
    if y.ndim == 2:
        return y
    y = y.flatten(2)
    if y.shape[2] <= _MOST_POINTS:
        return y
    return y[..., torch.randperm(y.shape[2], generator=torch.Generator().manual_seed(0))[:_MOST_POINTS]]


def _layer_error(
    name: str, module: nn.Module, grid: tuple[int, ...], pairs: Sequence[tuple[Tensor, Tensor]]
) -> LayerError:
    out_type = output_type(module)
    assert out_type is not None
    expected, found = (torch.cat(maps).double() for maps in zip(*pairs, strict=True))
    pieces = zip(out_type.degrees, out_type.split(expected), out_type.split(found - expected), strict=True)
    per_degree = {degree: _ratio(difference, value) for degree, value, difference in pieces}
    total = _ratio(found - expected, expected)
    return LayerError(name or "logits", type(module).__name__, str(out_type), grid, total, per_degree)


def _ratio(difference: Tensor, value: Tensor) -> float:
    size, error = value.norm().item(), difference.norm().item()
    return error / size if size else float(error > 0)
