"""Processes and devices: one on a laptop, many under ``torchrun``, with the same code."""

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor

from steerformer.config import ConfigError
from steerformer.train.config import TrainingConfig

Result = TypeVar("Result")
_PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "64": "64-true"}


def make_fabric(config: TrainingConfig) -> Fabric:
    """Devices, precision and processes as configured; those of ``torchrun`` where it has started us."""
    if config.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError("training.precision=fp16 needs a GPU; take bf16 or 32 on a CPU.")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    devices, nodes, strategy = config.devices, config.num_nodes, config.strategy
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
        strategy = "ddp"
    with warnings.catch_warnings():
        # asked for at every start and answered here: other processes than ours are none of our business
        warnings.filterwarnings("ignore", message=r".*srun.*")
        try:
            fabric = Fabric(
                devices=devices, num_nodes=nodes, strategy=strategy, precision=_PRECISIONS[config.precision]
            )
        except Exception as error:
            raise ConfigError(f"training.devices={devices} cannot be had: {_first_line(error)}") from None
    return fabric


def on_first(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """What ``action`` gives in the first process, for all of them; where it fails, all fail alike and none waits."""
    result: Any = None
    error: Exception | None = None
    if fabric.is_global_zero:
        try:
            result = action()
        except (OSError, ValueError) as problem:
            error = problem
    if fabric.world_size > 1:
        result, error = fabric.broadcast((result, error))
    if error is not None:
        raise error
    return result


def total(fabric: Fabric, x: Tensor) -> Tensor:
    """The sum of ``x`` over all processes, on the CPU."""
    return torch.as_tensor(fabric.all_reduce(x, reduce_op="sum")).cpu() if fabric.world_size > 1 else x


def first_then_others(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """Each process does it, the first one before all others: it may prepare files that they read."""
    kept: list[Result] = []
    on_first(fabric, lambda: kept.append(action()))
    return kept[0] if kept else action()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
