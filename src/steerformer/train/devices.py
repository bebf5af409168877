"""Processes and devices: one on a laptop, many under ``torchrun``, with the same code."""

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

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


class ProcessError(ValueError):
    """Another process has failed; the message is one line."""


def on_first(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """What ``action`` gives in the first process, for all of them; where it fails, all fail and none waits."""
    result, error = _try(action) if fabric.is_global_zero else (None, None)
    if fabric.world_size == 1:
        told = None
    else:
        result, told = fabric.broadcast((result, _line(error)))
    if error is not None:
        raise error
    if told is not None:
        raise ProcessError(f"the first process failed: {told}")
    return cast(Result, result)


def total(fabric: Fabric, x: Tensor) -> Tensor:
    """The sum of ``x`` over all processes, on the CPU."""
    return torch.as_tensor(fabric.all_reduce(x, reduce_op="sum")).cpu() if fabric.world_size > 1 else x


def gather(fabric: Fabric, mine: Result) -> list[Result]:
    """What each process has, for all of them."""
    everyone = [mine] * fabric.world_size
    if fabric.world_size > 1:
        torch.distributed.all_gather_object(everyone, mine)
    return everyone


def first_then_others(fabric: Fabric, action: Callable[[], Result]) -> Result:
    """Each process does it, the first one of each machine before the others: it may prepare files that they read.

    Where it fails in any of them, all fail and none waits.
    """
    result: Result | None = None
    for turn in (fabric.local_rank == 0, fabric.local_rank != 0):
        error = None
        if turn:
            result, error = _try(action)
        _agree(fabric, error)
    return cast(Result, result)


def _try(action: Callable[[], Result]) -> tuple[Result | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:  # whatever it is, the others wait to hear of it
        return None, error


def _agree(fabric: Fabric, error: Exception | None) -> None:
    """Go on if no process has an error; each raises its own, or else the first that another one has."""
    told = gather(fabric, _line(error))
    if error is not None:
        raise error
    for process, line in enumerate(told):
        if line is not None:
            raise ProcessError(f"process {process} failed: {line}")


def _line(error: Exception | None) -> str | None:
    """In words, since not every error can be sent."""
    if error is None:
        return None
    line = _first_line(error)
    return line if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {line}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
