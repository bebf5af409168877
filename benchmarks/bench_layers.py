"""Time and memory of each layer relative to a baseline: plain torch, its own parts, or e3nn."""

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steerformer as sf
from measure import Contestant, in_ms, interleaved_times, median_ratio, peak_memory

CONV_SHARE_LIMIT, RELU_RATIO_LIMIT = 0.1, 6.0
"""Time limits of norms and nonlinearities: relative to a convolution on the same field, and to a ReLU."""
CONV_RATIO_LIMIT = 0.8
"""Time limit of a steerable convolution, relative to a real one of as many channels."""


@dataclass(frozen=True)
class Case:
    """One comparison: our module and a baseline, each with its input."""

    baseline_name: str
    ours: nn.Module
    input: Tensor
    baseline: Callable[[Tensor], Tensor]
    baseline_input: Tensor
    limit: float | None = None
    """Largest ratio of times, forward and backward."""
    limit_eval: float | None = None
    """The same for forward in eval mode."""
    conv: nn.Module | None = None
    """A convolution on the same input: the layer may take :data:`CONV_SHARE_LIMIT` of its time."""
    memory_limit: float | None = None
    """Largest peak memory, forward and backward, relative to input and output."""
    always_trains: bool = False
    """Measure forward in training mode, too: in eval mode the layer is the identity."""


@dataclass(frozen=True)
class Setting:
    """The input field of the layers."""

    field_type: sf.FieldType
    batch: int
    size: int

    @property
    def dim(self) -> int:
        return self.field_type.group.dim

    def sample(self, field_type: sf.FieldType | None = None) -> Tensor:
        return (field_type or self.field_type).randn(self.batch, self.size).requires_grad_()


SETTINGS = (
    Setting(sf.FieldType(sf.SO2, (24,) * 8), batch=8, size=28),
    Setting(sf.FieldType(sf.SO3, (8, 4, 2)), batch=1, size=32),
)


def all_cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Names, and functions that build the cases."""
    for setting in SETTINGS:
        for name, make in LAYERS.items():
            yield name.format(f"{setting.dim}D"), partial(make, setting)
        if setting.dim == 3:
            yield "Linear 3D, e3nn", partial(_linear_relative_to_e3nn, setting)
            yield "TensorProduct 3D, e3nn", partial(_product_relative_to_e3nn, setting)
    if shutil.which(os.environ.get("CXX", "c++")):
        yield "TransformerBlock 2D, torch.compile", _compiled_block


def measure(name: str, case: Case, *, seconds: float) -> dict[str, Any]:
    """Time of forward in eval mode, of forward and backward in training mode, and peak memory of the latter."""
    row: dict[str, Any] = {"name": name, "baseline": case.baseline_name}
    rounds: dict[str, dict[str, list[float]]] = {}
    modules = [module for module in (case.ours, case.baseline, case.conv) if isinstance(module, nn.Module)]
    for mode, backward in (("forward", False), ("training", True)):
        for module in modules:
            module.train(backward or case.always_trains)
        ours = Contestant("ours", lambda: case.ours(case.input), backward)
        baseline = Contestant("baseline", lambda: case.baseline(case.baseline_input), backward)
        times = interleaved_times([ours, baseline], rounds=15, seconds=seconds)
        peak = peak_memory(ours.run)
        row[f"{mode}_ms"] = round(1e3 * median(times["ours"]), 2)
        row[f"{mode}_ratio"] = round(median_ratio(times["ours"], times["baseline"]), 2)
        row[f"{mode}_memory_ratio"] = round(peak / max(peak_memory(baseline.run), 1), 2)
        rounds[mode] = in_ms(times)
    row |= {"forward_limit": case.limit_eval, "training_limit": case.limit}
    row |= {"memory_share": round(peak / _bytes_in_and_out(case), 2), "memory_share_limit": case.memory_limit}
    if (conv := case.conv) is not None:
        convolution = Contestant("conv", lambda: conv(case.input), True)
        times = interleaved_times([ours, convolution], rounds=15, seconds=seconds)
        row |= {"share": round(median_ratio(times["ours"], times["conv"]), 3), "share_limit": CONV_SHARE_LIMIT}
        rounds["share"] = in_ms(times)
    return row | {"rounds_ms": rounds}


@torch.no_grad()
def _bytes_in_and_out(case: Case) -> int:
    return case.input.nbytes + case.ours(case.input).nbytes


def _conv(setting: Setting) -> Case:
    """From a field to one with twice the copies."""
    copies = [2 * n for n in setting.field_type.multiplicities]
    return _conv_case(setting, setting.field_type, sf.FieldType(setting.field_type.group, copies))


def _first_conv(setting: Setting) -> Case:
    """From an image; without gradients it is the very convolution that it is compared with, so it has no limit then."""
    case = _conv_case(setting, sf.FieldType.image(setting.field_type.group, 1), setting.field_type)
    return replace(case, limit_eval=None)


def _conv_case(setting: Setting, in_type: sf.FieldType, out_type: sf.FieldType) -> Case:
    """Relative to a real convolution of as many real channels."""
    conv = sf.nn.Conv(in_type, out_type, kernel_size=5)
    apply = F.conv2d if setting.dim == 2 else F.conv3d
    kernel = nn.Parameter(torch.randn(out_type.channels, in_type.channels, *(5,) * setting.dim))
    x = setting.sample(in_type)
    limits = {"limit": CONV_RATIO_LIMIT, "limit_eval": CONV_RATIO_LIMIT}
    return Case("torch conv, as many real channels", conv, x, lambda v: apply(v, kernel, padding=2), x, **limits)


def _relative_to_relu(make: Callable[[sf.FieldType], nn.Module]) -> Callable[[Setting], Case]:
    def build(setting: Setting) -> Case:
        x, field_type = setting.sample(), setting.field_type
        conv = sf.nn.Conv(field_type, field_type, kernel_size=5)
        return Case("relu", make(field_type), x, F.relu, x, limit_eval=RELU_RATIO_LIMIT, conv=conv)

    return build


def _batch_norm(setting: Setting) -> Case:
    channels = setting.field_type.channels
    baseline = nn.BatchNorm2d(channels) if setting.dim == 2 else nn.BatchNorm3d(channels)
    x = setting.sample()
    return Case("torch BatchNorm", sf.nn.BatchNorm(setting.field_type), x, baseline, x)


def _dropout(setting: Setting) -> Case:
    x = setting.sample()
    layer = sf.nn.FieldDropout(setting.field_type)
    return Case("torch dropout", layer, x, lambda v: F.dropout(v, 0.5), x, always_trains=True)


def _pool(*, antialiased: bool) -> Callable[[Setting], Case]:
    def build(setting: Setting) -> Case:
        x, apply = setting.sample(), F.avg_pool2d if setting.dim == 2 else F.avg_pool3d
        layer = sf.nn.AvgPool(setting.field_type, kernel_size=2, antialiased=antialiased)
        return Case("avg_pool", layer, x, lambda v: apply(v, 2), x)

    return build


def _resample(setting: Setting) -> Case:
    x, mode = setting.sample(), "bilinear" if setting.dim == 2 else "trilinear"
    layer = sf.nn.Resample(setting.field_type, scale=2)
    return Case("interpolate", layer, x, lambda v: F.interpolate(v, scale_factor=2, mode=mode), x)


def _linear(setting: Setting) -> Case:
    x, channels = setting.sample(), setting.field_type.channels
    conv = nn.Conv2d if setting.dim == 2 else nn.Conv3d
    layer = sf.nn.Linear(setting.field_type, setting.field_type)
    return Case("torch conv, kernel size 1", layer, x, conv(channels, channels, 1, bias=False), x)


def _gated(setting: Setting) -> Case:
    layer, x = sf.nn.Gated(setting.field_type), setting.sample()
    return Case("its convolution", layer, x, layer.gates, x)


def _fourier(setting: Setting) -> Case:
    layer, x = sf.nn.FourierReLU(setting.field_type), setting.sample()
    return Case("relu", layer, x, F.relu, x, memory_limit=3 if setting.dim == 3 else None)


def _product(setting: Setting) -> Case:
    layer, x = sf.nn.TensorProduct(setting.field_type, setting.field_type), setting.sample()
    return Case("its three Linear layers", layer, x, lambda v: layer.mix(layer.left(v) + layer.right(v)), x)


def _invariants(setting: Setting) -> Case:
    x = setting.sample()
    return Case("relu", sf.nn.Invariants(setting.field_type), x, F.relu, x)


LAYERS: dict[str, Callable[[Setting], Case]] = {
    "Conv {}": _conv,
    "Conv {}, first layer": _first_conv,
    "NormReLU {}": _relative_to_relu(sf.nn.NormReLU),
    "LayerNorm {}": _relative_to_relu(sf.nn.LayerNorm),
    "BatchNorm {}": _relative_to_relu(sf.nn.BatchNorm),
    "BatchNorm {}, torch": _batch_norm,
    "FieldDropout {}": _dropout,
    "AvgPool {}": _pool(antialiased=False),
    "AvgPool {}, antialiased": _pool(antialiased=True),
    "Resample {}": _resample,
    "Linear {}": _linear,
    "Gated {}": _gated,
    "FourierReLU {}": _fourier,
    "TensorProduct {}": _product,
    "Invariants {}": _invariants,
}


def _linear_relative_to_e3nn(setting: Setting) -> Case:
    from e3nn import o3

    irreps, points = _e3nn_field(setting)
    layer = sf.nn.Linear(setting.field_type, setting.field_type)
    return Case("e3nn Linear", layer, setting.sample(), o3.Linear(irreps, irreps), points)


def _product_relative_to_e3nn(setting: Setting) -> Case:
    """e3nn's couples every copy with every other one, ours couples learned mixtures of the copies one by one."""
    from e3nn import o3

    irreps, points = _e3nn_field(setting)
    product = o3.FullyConnectedTensorProduct(irreps, irreps, irreps)
    layer = sf.nn.TensorProduct(setting.field_type, setting.field_type)
    baseline_name = "e3nn FullyConnectedTensorProduct"
    return Case(baseline_name, layer, setting.sample(), lambda v: product(v, v), points)


def _e3nn_field(setting: Setting) -> tuple[Any, Tensor]:
    """The same real irreps (real and imaginary parts are copies, parity is even) and as many points."""
    from e3nn import o3

    irreps = o3.Irreps([(2 * copies, (degree, 1)) for degree, copies in enumerate(setting.field_type.multiplicities)])
    return irreps, irreps.randn(setting.batch * setting.size**setting.dim, -1).requires_grad_()


def _compiled_block() -> Case:
    """torch.compile of a whole block, attention included."""
    setting = Setting(sf.FieldType(sf.SO2, (16,) * 4), batch=4, size=16)
    block, x = sf.nn.TransformerBlock(setting.field_type, num_heads=4), setting.sample()
    compiled = copy.deepcopy(block)
    compiled.compile()
    return Case("the same, not compiled", compiled, x, block, x)
