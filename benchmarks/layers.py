"""What is measured against what: each layer of steerformer beside plain torch doing the same arithmetic."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steerformer as sf
from steerformer.groups import Group


@dataclass(frozen=True)
class Case:
    """One comparison: our module and torch's function on the input each of them takes."""

    name: str
    peer_name: str
    ours: nn.Module
    input: Tensor
    peer: Callable[[Tensor], Tensor]
    peer_input: Tensor
    limit: float | None = None
    """Largest ratio of times, forward and backward, that the design allows."""
    limit_eval: float | None = None


def all_cases() -> Iterator[Case]:
    """Convolutions first, then what stands between them."""
    flat, thin = sf.FieldType(sf.SO2, (24,) * 8), sf.FieldType(sf.SO3, (8, 4, 2))
    wide = {sf.SO2: sf.FieldType(sf.SO2, (48,) * 8), sf.SO3: sf.FieldType(sf.SO3, (16, 8, 4))}
    for field_type, batch, size in ((flat, 8, 28), (thin, 1, 32)):
        group = field_type.group
        image = sf.FieldType.image(group, 1)
        yield _conv_case(f"Conv {_label(group)}", field_type, wide[group], batch, size)
        yield _conv_case(f"Conv {_label(group)}, first layer", image, field_type, batch, size)
        yield from _layer_cases(field_type, batch, size)


def _conv_case(name: str, in_type: sf.FieldType, out_type: sf.FieldType, batch: int, size: int) -> Case:
    conv = sf.nn.Conv(in_type, out_type, kernel_size=5)
    apply = F.conv2d if in_type.group.dim == 2 else F.conv3d
    x = in_type.randn(batch, size).requires_grad_()
    with torch.no_grad():
        parts = conv.basis.assemble(conv.weight)
        kernel = torch.complex(parts[0], parts[1])
        halves = x.unflatten(1, (in_type.parts, -1))
        z = torch.complex(halves[:, 0], halves[:, -1]).requires_grad_()
    kernel.requires_grad_()
    return Case(
        f"{name}, {in_type.copies} to {out_type.copies} copies",
        "torch complex conv",
        conv,
        x,
        lambda value: apply(value, kernel, padding=2),
        z,
        limit=1.15,
        limit_eval=1.05,
    )


def _layer_cases(field_type: sf.FieldType, batch: int, size: int) -> Iterator[Case]:
    group, label = field_type.group, _label(field_type.group)
    x = field_type.randn(batch, size).requires_grad_()
    channels = field_type.channels
    pool, grow = (F.avg_pool2d, "bilinear") if group.dim == 2 else (F.avg_pool3d, "trilinear")
    point = (1,) * group.dim
    weight = torch.randn(channels, channels, *point, requires_grad=True)
    apply = F.conv2d if group.dim == 2 else F.conv3d
    ones = torch.ones(channels)

    def case(layer: nn.Module, peer_name: str, peer: Callable[[Tensor], Tensor], limit: float | None = None) -> Case:
        return Case(f"{type(layer).__name__} {label}", peer_name, layer, x, peer, x, limit)

    yield case(sf.nn.NormReLU(field_type), "relu", F.relu)
    yield case(sf.nn.LayerNorm(field_type), "relu", F.relu)
    yield case(sf.nn.BatchNorm(field_type), "batch_norm", lambda v: F.batch_norm(v, None, None, ones, ones, True))
    yield case(sf.nn.AvgPool(field_type, kernel_size=2), "avg_pool", lambda v: pool(v, 2))
    yield case(
        sf.nn.Resample(field_type, scale=2), "interpolate", lambda v: F.interpolate(v, scale_factor=2, mode=grow)
    )
    yield case(sf.nn.Linear(field_type, field_type), "conv of width 1", lambda v: apply(v, weight))
    yield case(sf.nn.Gated(field_type), "relu", F.relu)
    yield case(sf.nn.FourierReLU(field_type), "relu", F.relu)
    yield case(sf.nn.TensorProduct(field_type, field_type), "relu", F.relu)
    yield case(sf.nn.Invariants(field_type), "relu", F.relu)


def _label(group: Group) -> str:
    return f"{group.dim}D"
