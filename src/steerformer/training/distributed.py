"""Devices and processes: one on a laptop, many under ``torchrun``, with the same code."""

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from steerformer.config import ConfigError
from steerformer.runs.config import TrainingConfig

Result = TypeVar("Result")
_PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "64": "64-true"}


def make_fabric(config: TrainingConfig) -> Fabric:
    """Fabric with the configured devices, precision and processes, or those of ``torchrun``."""
    if config.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError("training.precision=fp16 needs a GPU; use bf16 or 32 on a CPU.")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    devices, nodes, strategy = config.devices, config.num_nodes, config.strategy
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
        strategy = "ddp"
    with warnings.catch_warnings():
        # Fabric suggests srun on clusters at every start
        warnings.filterwarnings("ignore", message=r".*srun.*")
        try:
            fabric = Fabric(
                devices=devices, num_nodes=nodes, strategy=strategy, precision=_PRECISIONS[config.precision]
            )
        except Exception as error:
            raise ConfigError(f"training.devices={devices} is not available: {_first_line(error)}") from None
    return fabric


class ProcessError(ValueError):
    """Another process failed; the message is one line."""


def on_first(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """Run ``action`` in the first process and broadcast its result; if it fails, all processes fail and none hangs."""
    result, error = _try(action) if fabric.is_global_zero else (None, None)
    if fabric.world_size == 1:
        message = None
    else:
        result, message = fabric.broadcast((result, _line(error)))
    if error is not None:
        raise error
    if message is not None:
        raise ProcessError(f"the first process failed: {message}")
    return cast(Result, result)


def total(fabric: Fabric, x: Tensor) -> Tensor:
    """The sum of ``x`` over all processes, on the CPU."""
    return torch.as_tensor(fabric.all_reduce(x, reduce_op="sum")).cpu() if fabric.world_size > 1 else x


def gather(fabric: Fabric, mine: Result) -> list[Result]:
    """The objects of all processes, in every process."""
    everyone = [mine] * fabric.world_size
    if fabric.world_size > 1:
        torch.distributed.all_gather_object(everyone, mine)
    return everyone


def first_then_others(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """Run ``action`` in every process, first in one process per machine: it may write files that the others read.

    If it fails in any process, all fail and none hangs.
    """
    result: Result | None = None
    for runs_now in (fabric.local_rank == 0, fabric.local_rank != 0):
        error = None
        if runs_now:
            result, error = _try(action)
        _raise_any(fabric, error)
    return cast(Result, result)


def _try(action: Callable[[], Result]) -> tuple[Result | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:  # of any kind: the other processes wait for it
        return None, error


def _raise_any(fabric: Fabric, error: Exception | None) -> None:
    """Raise the error of this process, or else report the first error of another one."""
    messages = gather(fabric, _line(error))
    if error is not None:
        raise error
    for process, line in enumerate(messages):
        if line is not None:
            raise ProcessError(f"process {process} failed: {line}")


def _line(error: Exception | None) -> str | None:
    """As text, since not every error can be pickled."""
    if error is None:
        return None
    line = _first_line(error)
    return line if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {line}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
