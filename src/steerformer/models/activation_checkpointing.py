"""Activation checkpointing: keep a module's inputs only and recompute its activations in the backward pass."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from steerformer.nn import BatchNorm


def checkpointed(module: nn.Module, *inputs: Tensor | None) -> Tensor:
    """Call ``module(*inputs)`` with activation checkpointing: autograd keeps only the inputs."""
    if not torch.is_grad_enabled():
        return module(*inputs)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _frozen_statistics(module)

    out: Tensor = checkpoint(module, *inputs, use_reentrant=False, context_fn=contexts)
    return out


@contextmanager
def _frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Keep running statistics as they are: the forward pass has already counted this batch."""
    norms = [inner for inner in module.modules() if isinstance(inner, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
