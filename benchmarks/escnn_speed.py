"""Time, memory and parameters of one convolution in steerformer and in escnn, between the same representations."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from escnn_layers import Stack, escnn_stack, field_types, our_stack
from measure import Contestant, in_ms, interleave, peak_memory
from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3, Group

COMPLEX, REAL, ESCNN = "complex", "real", "escnn"
"""Fields of steerformer, complex and (3D only) real, and those of escnn."""
ROUNDS, SECONDS = 30, 150
SHORTEST = 0.05
"""Seconds: functions that take less run several times in a row."""


@dataclass(frozen=True)
class Setting:
    """Sizes of one measurement."""

    dim: int
    input: str
    """An "image" of one channel, or "features"."""
    copies: tuple[int, ...]
    kernel_size: int
    batch: int
    size: int

    @property
    def group(self) -> Group:
        return SO2 if self.dim == 2 else SO3


FLAT = {"dim": 2, "copies": (8, 8, 8), "batch": 8, "size": 64}
SOLID = {"dim": 3, "copies": (8, 4, 2), "batch": 2, "size": 16}
SETTINGS = tuple(
    Setting(**shared, input=entry, kernel_size=kernel_size)
    for shared, sizes in ((FLAT, (5, 7)), (SOLID, (3, 5)))
    for entry in ("image", "features")
    for kernel_size in sizes
)
MODES = {"training, forward": (True, False), "training, forward and backward": (True, True), "eval": (False, False)}
"""Whether in training mode, and whether with the backward pass. In eval mode both libraries keep the kernel."""


def measure(setting: Setting, rounds: int = ROUNDS) -> dict[str, Any]:
    """All rounds of each mode in milliseconds of CPU time, peak memory of a training step, numbers of values."""
    torch.manual_seed(0)
    stacks, types = _stacks(setting)
    x = types[0].randn(setting.batch, setting.size)
    x.requires_grad_(setting.input == "features")  # images need no gradient
    rounds_ms = {mode: _times(stacks, x, *MODES[mode], rounds) for mode in MODES}
    return asdict(setting) | {
        "channels": types[1].channels,
        "rounds_ms": rounds_ms,
        "peak_mb": {name: _peak(stack, x) for name, stack in stacks.items()},
        "parameters": {name: _numbers(stack.module.parameters()) for name, stack in stacks.items()},
        "constants": {name: _numbers(stack.module.buffers()) for name, stack in stacks.items()},
    }


def _stacks(setting: Setting) -> tuple[dict[str, Stack], list[FieldType]]:
    """One convolution of each kind, and the types of the complex one; the number of channels is the same in all."""
    options = {"kernel_size": setting.kernel_size, "same": True}
    chosen = {"group": setting.group, "copies": setting.copies, "depth": 1, "image": setting.input == "image"}
    types = field_types(**chosen)
    stacks = {COMPLEX: our_stack(types, **options), ESCNN: escnn_stack(types, **options)}
    if setting.group.has_real_irreps:
        stacks[REAL] = our_stack(field_types(**chosen, real=True), **options)
    return stacks, types


def _times(stacks: dict[str, Stack], x: Tensor, training: bool, backward: bool, rounds: int) -> dict[str, list[float]]:
    """CPU time of the process, which other processes change far less than the time on the clock; one thread."""
    for stack in stacks.values():
        stack.module.train(training)
    runs = {name: Contestant(name, lambda s=stack: s.apply(x), backward).run for name, stack in stacks.items()}
    fastest = min(_cpu_seconds(run, 1) for run in runs.values() for _ in range(2))
    repeats = max(1, math.ceil(SHORTEST / fastest))
    timers = {name: partial(_cpu_seconds, run, repeats) for name, run in runs.items()}
    return in_ms(interleave(timers, rounds=rounds, seconds=SECONDS))


def _cpu_seconds(run: Callable[[], None], repeats: int) -> float:
    """Seconds of one run, the mean of several in a row."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def _peak(stack: Stack, x: Tensor) -> float:
    """Megabytes that torch allocates at most in a training step."""
    stack.module.train()
    step = Contestant("step", lambda: stack.apply(x), backward=True)
    step.run()
    return round(peak_memory(step.run) / 1e6, 1)


def _numbers(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
