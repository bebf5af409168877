"""How well every layer inside a model turns with its input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.audit.rotations import input_type
from steerformer.audit.sampling import compared_points, values_at
from steerformer.audit.watching import run_watched
from steerformer.fields import FieldType

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class LayerError:
    r"""Relative error $\|f(Rx) - R f(x)\| / \|f(x)\|$ of what a layer gives, with all layers before it."""

    name: str
    kind: str
    field_type: str
    grid: tuple[int, ...]
    compared: str
    """Where: ``all voxels``, ``center`` (nothing interpolated), ``interior`` (by splines), or ``no space``."""
    total: float
    per_degree: dict[int, float]


def layer_errors(
    model: nn.Module,
    upright: Float[Tensor, "batch channels *space"],
    turned: Sequence[tuple[Float[Tensor, "dim dim"], Float[Tensor, "batch channels *space"]]],
) -> list[LayerError]:
    """Errors of all modules that tell their ``out_type``, in the order in which they end, over all rotations together.

    Args:
        model: in eval mode; called as it is.
        upright: the input.
        turned: rotations, and the same input turned by each: exactly, by rotations of the grid, or sampled again from a
            formula (:class:`steerformer.testing.Scene`). Rotations are all of the one kind or all of the other.
    """
    group = input_type(model).group
    is_exact = all(group.is_grid_rotation(R) for R, _ in turned)
    expected = _outputs(model, upright, partial(_turned_samples, rotations=[R for R, _ in turned], is_exact=is_exact))
    found = [_outputs(model, x, partial(_samples, is_exact=is_exact)) for _, x in turned]
    modules = dict(model.named_modules())
    errors = []
    for name, (grid, samples) in expected.items():
        if samples[0].numel():  # a grid of two voxels has no interior
            pairs = [(value, other[name]) for value, other in zip(samples, found, strict=True)]
            word = compared_points(grid, is_exact=is_exact)[1] if grid else "no space"
            errors.append(_layer_error(name, modules[name], grid, word, pairs))
    return errors


def output_type(module: nn.Module) -> FieldType | None:
    """The field type of what a module gives, if it tells."""
    out_type = getattr(module, "out_type", None)
    return out_type if isinstance(out_type, FieldType) else None


def _outputs(model: nn.Module, x: Tensor, keep: Callable[[FieldType, Tensor], Kept]) -> dict[str, Kept]:
    """What ``keep`` makes of the output of each module, taken while the model runs: whole maps would fill memory."""
    kept: dict[str, Kept] = {}

    def look(module: nn.Module, arguments: Any, output: Any, *, name: str) -> None:
        out_type = output_type(module)
        if out_type and isinstance(output, Tensor) and output.ndim in (2, 2 + out_type.group.dim):
            kept.pop(name, None)  # a module that runs twice counts where it ran last
            kept[name] = keep(out_type, output)

    handles = [m.register_forward_hook(partial(look, name=name)) for name, m in model.named_modules() if output_type(m)]
    run_watched(model, x, handles)
    return kept


def _samples(out_type: FieldType, y: Tensor, *, is_exact: bool) -> Tensor:
    """Values at the compared points, ``(batch * point, channels)``."""
    if y.ndim == 2:
        return y
    points, _ = compared_points(tuple(y.shape[2:]), is_exact=is_exact)
    return values_at(y, points).mT.flatten(0, 1)


def _turned_samples(
    out_type: FieldType, y: Tensor, *, rotations: Sequence[Tensor], is_exact: bool
) -> tuple[tuple[int, ...], list[Tensor]]:
    """The grid, and for each rotation what the turned map should hold, ``rho(R) f(R^-1 x)``."""
    if y.ndim == 2:
        return (), [out_type.rotate(y, R) for R in rotations]
    grid = tuple(y.shape[2:])
    points, _ = compared_points(grid, is_exact=is_exact)
    return grid, [out_type.rotate(values_at(y, points @ R).mT.flatten(0, 1), R) for R in rotations]


def _layer_error(
    name: str, module: nn.Module, grid: tuple[int, ...], compared: str, pairs: Sequence[tuple[Tensor, Tensor]]
) -> LayerError:
    out_type = output_type(module)
    assert out_type is not None
    expected, found = (torch.cat(values).double() for values in zip(*pairs, strict=True))
    pieces = zip(out_type.degrees, out_type.split(expected), out_type.split(found - expected), strict=True)
    per_degree = {degree: _ratio(difference, value) for degree, value, difference in pieces}
    total = _ratio(found - expected, expected)
    return LayerError(name or "logits", type(module).__name__, str(out_type), grid, compared, total, per_degree)


def _ratio(difference: Tensor, value: Tensor) -> float:
    size, error = value.norm().item(), difference.norm().item()
    return error / size if size else float(error > 0)
