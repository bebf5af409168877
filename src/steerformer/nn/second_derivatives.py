"""Gradients that are differentiable themselves, for backward passes with ``create_graph=True``."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiable_gradients(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor | None],
    grads: Tensor | tuple[Tensor, ...],
) -> list[Tensor | None]:
    """Gradients of ``function(*inputs)`` by each input, or ``None`` for those that need none.

    They are taken by views of the inputs: an input may depend on another one, as the positions of scores depend on the
    queries, and its gradient must not be part of the other's.
    """
    views = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
    wanted = [x for x in views if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(function(*views), wanted, grads, create_graph=True))
    return [next(found) if x is not None and x.requires_grad else None for x in views]
