"""Summary of a model: layers, field types, output shapes and parameters."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.models.classifier import Classifier
from steerformer.models.cnn import CNN
from steerformer.models.monai_unet import MonaiUNet
from steerformer.models.stem import FullResolutionHead, Stem
from steerformer.models.unet import UNet
from steerformer.models.unet_levels import Down, Up
from steerformer.nn import (
    BatchNorm,
    Conv,
    ConvTranspose,
    Decoder,
    DecoderBlock,
    Encoder,
    Linear,
    PositionalEncoding,
    TransformerBlock,
)
from steerformer.nn.ops import per_axis
from steerformer.testing import end_type

_CONTAINERS: tuple[type[nn.Module], ...] = (nn.Sequential, nn.ModuleList, Down, Up, Stem, FullResolutionHead)
_CONTAINERS += (Encoder, TransformerBlock, Decoder, DecoderBlock)
_COMPLEX_WEIGHTS = (Conv, ConvTranspose, Linear, PositionalEncoding, BatchNorm)


@dataclass(frozen=True)
class Row:
    """One layer: its path in the model, its types, the shape of its output and its parameters."""

    name: str
    layer: str
    types: str
    shape: tuple[int, ...]
    parameters: int
    complex_parameters: int


@dataclass(frozen=True)
class ModelSummary:
    """A model layer by layer; printed as a table.

    A complex weight is two real ``parameters``; ``complex_parameters`` counts it as one, as the paper does.
    """

    rows: tuple[Row, ...]
    parameters: int
    complex_parameters: int

    def __str__(self) -> str:
        head = ("", "layer", "types", "output", "real", "complex as one")
        total = ("", "", "", "all", f"{self.parameters:,}", f"{self.complex_parameters:,}")
        lines = [head, *(_cells(row) for row in self.rows), total]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


def summary(
    model: nn.Module, size: int | Sequence[int] | None = None, *, in_type: FieldType | None = None
) -> ModelSummary:
    """Summarize the layers of a model, in the order in which they are called.

    Args:
        model: a model of this library, a ``Sequential`` or another module.
        size: voxels along each side of the input, or along each axis; by default those of its configuration; for
            segmentation models, which take any size, four times the stride. Other modules have no default.
        in_type: type of the input, if neither the model nor the first layer of a ``Sequential`` has this attribute.

    >>> from steerformer import models
    >>> net = models.build({"kind": "classifier", "group": "SO2", "size": 12, "widths": [[2], [4]], "num_heads": 2})
    >>> models.summary(net).parameters == sum(parameter.numel() for parameter in net.parameters())
    True
    """
    rows: list[Row] = []
    in_type = in_type or end_type(model, "in_type")
    space = per_axis(_default_size(model) if size is None else size, in_type.group.dim, "size")
    dtype = next((parameter.dtype for parameter in model.parameters()), torch.get_default_dtype())
    shadow = copy.deepcopy(model).to("meta").eval()  # shapes only: a forward pass on a volume takes minutes
    layers = {**dict(_layers(shadow)), shadow: ""}

    def add_row(module: nn.Module, _: Any, output: Tensor) -> None:
        if module is shadow and rows:  # called last; a row of its own only if it is a single layer
            return
        rows.append(Row(layers[module], type(module).__name__, _types(module), tuple(output.shape[1:]), *count(module)))

    for module in layers:
        module.register_forward_hook(add_row)
    with torch.no_grad():
        shadow(torch.empty(1, in_type.channels, *space, device="meta", dtype=dtype))
    return ModelSummary(tuple(rows), *count(model))


def _default_size(model: nn.Module) -> int:
    if isinstance(model, UNet | MonaiUNet):
        return 4 * model.stride
    if isinstance(model, Classifier | CNN):
        return model.config.size
    raise ValueError(
        f"the summary of a {type(model).__name__} needs a size, the voxels along each side of its input: "
        f"models.summary(model, size)."
    )


def count(module: nn.Module) -> tuple[int, int]:
    """Number of real parameters, and of parameters if a complex one counts as one."""
    real = sum(parameter.numel() for parameter in module.parameters())
    halves = 0
    for inner in module.modules():
        if isinstance(inner, _COMPLEX_WEIGHTS):
            halves += sum(p.numel() // 2 for p in inner.parameters(recurse=isinstance(inner, Linear)) if _is_complex(p))
    return real, real - halves


def _is_complex(parameter: nn.Parameter) -> bool:
    """Complex weights have real and imaginary part along their first axis."""
    return parameter.ndim > 1 and len(parameter) == 2


def _layers(module: nn.Module, name: str = "") -> Iterator[tuple[nn.Module, str]]:
    """Layers without the containers around them and the modules inside them."""
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        if isinstance(child, _CONTAINERS):
            yield from _layers(child, path)
        elif not isinstance(child, nn.Identity):
            yield child, path


def _types(module: nn.Module) -> str:
    before, after = getattr(module, "in_type", None), getattr(module, "out_type", None)
    return "" if before is None else f"{before}" if before == after else f"{before} -> {after}"


def _cells(row: Row) -> tuple[str, ...]:
    shape = "x".join(map(str, row.shape))
    return row.name, row.layer, row.types, shape, f"{row.parameters:,}", f"{row.complex_parameters:,}"
