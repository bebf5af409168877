"""Times of training steps with real and with complex fields, for docs/real_fields.md."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from steerformer.fields import FieldType
from steerformer.groups import SO3
from steerformer.models import build, preset
from steerformer.nn import Attention, Conv, FourierReLU, TransformerBlock
from steerformer.nn.conv_cost import ConvImplementation


class Kind(NamedTuple):
    """Real or complex features, and their multiplicities relative to those of complex features."""

    real: bool
    factor: int


KINDS = {
    "complex": Kind(real=False, factor=1),
    "real, equal multiplicities": Kind(real=True, factor=1),
    "real, equal channels": Kind(real=True, factor=2),
}
"""At equal channels a field of real numbers has twice the multiplicities."""
CLASSIFIER, UNET = "modelnet10-transformer-l3-cpu", "hippocampus-transformer-l2-cpu"


class Subject(NamedTuple):
    """A layer or model of a kind of fields, and the batch and grid of its input."""

    make: Callable[[Kind], nn.Module]
    batch: int
    size: int


def field_type(kind: Kind) -> FieldType:
    """Degrees 0 to 2 with 16, 8 and 4 copies, or twice as many."""
    return FieldType(SO3, [kind.factor * copies for copies in (16, 8, 4)], real=kind.real)


def model(name: str, kind: Kind) -> nn.Module:
    """The model of a preset with features of this kind."""
    return build({**preset(name)["model"], **changes(name, kind)})


def changes(name: str, kind: Kind) -> dict[str, Any]:
    """Keys of the preset's model that differ."""
    original = preset(name)["model"]
    widths = [[[kind.factor * copies for copies in each] for each in block] for block in original["widths"]]
    features = {"features": kind.factor * original["features"]} if "features" in original else {}
    return {"real": kind.real, "widths": widths, **features}


def _conv(kind: Kind, implementation: ConvImplementation = "auto") -> nn.Module:
    return Conv(field_type(kind), field_type(kind), kernel_size=5, implementation=implementation)


SUBJECTS = {
    "`Conv`, kernel size 5, 16 voxels along each side": Subject(_conv, 1, 16),
    'the same, `implementation="direct"`': Subject(partial(_conv, implementation="direct"), 1, 16),
    "`FourierReLU`, 16 voxels along each side": Subject(lambda kind: FourierReLU(field_type(kind)), 1, 16),
    "`Attention`, 4 heads, 8 voxels along each side": Subject(lambda k: Attention(field_type(k), num_heads=4), 1, 8),
    "`TransformerBlock`, 4 heads, 8 voxels": Subject(lambda k: TransformerBlock(field_type(k), num_heads=4), 1, 8),
    f"model of `{CLASSIFIER}`, batch of 4": Subject(partial(model, CLASSIFIER), 4, 24),
    f"model of `{UNET}`, 32 voxels along each side": Subject(partial(model, UNET), 1, 32),
}


def measure(subject: Subject, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Milliseconds of training steps of every kind, interleaved, and numbers of parameters."""
    steps, found = {}, dict[str, dict[str, Any]]()
    for name, kind in KINDS.items():
        torch.manual_seed(0)
        layer = subject.make(kind)
        steps[name] = _step(layer, subject)
        found[name] = {"parameters": sum(parameter.numel() for parameter in layer.parameters()), "ms": []}
    for done in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if done:  # the first step fills caches
                found[name]["ms"].append(float(f"{1e3 * (time.perf_counter() - start):.4g}"))
    return found


def _step(layer: nn.Module, subject: Subject) -> Callable[[], None]:
    """Forward and backward pass, also to the input of a layer, and a step of AdamW if there are parameters."""
    in_type = getattr(layer, "in_type", None)
    assert isinstance(in_type, FieldType)
    x = in_type.randn(subject.batch, subject.size).requires_grad_(not in_type.is_scalar)
    parameters = list(layer.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4) if parameters else None

    def step() -> None:
        layer(x).square().mean().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return step
