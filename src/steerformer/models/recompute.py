"""Less memory for more time: what is inside of a module is forgotten, and computed again for its gradients."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from steerformer.nn import BatchNorm


def recomputed(module: nn.Module, *inputs: Tensor | None) -> Tensor:
    """``module(*inputs)``, of which only the inputs are kept for backward."""
    if not torch.is_grad_enabled():
        return module(*inputs)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _with_still_statistics(module)

    out: Tensor = checkpoint(module, *inputs, use_reentrant=False, context_fn=contexts)
    return out


@contextmanager
def _with_still_statistics(module: nn.Module) -> Iterator[None]:
    """Running statistics have taken note of this batch already."""
    norms = [inner for inner in module.modules() if isinstance(inner, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
