"""Helpers for inference: eval mode, and the dtype and device that a model takes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Run the body with ``model`` in eval mode and without gradients, then restore its training mode."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def reference_parameter(model: nn.Module) -> Tensor:
    """A tensor with the dtype and device of ``model``, for ``x.to(...)``; float32 on the CPU without parameters."""
    return next(model.parameters(), torch.zeros(()))
