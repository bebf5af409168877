"""A forward pass with hooks that are removed afterwards."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def run_with_hooks(model: nn.Module, x: Tensor, handles: Sequence[RemovableHandle], *others: Tensor) -> None:
    """Call the model, with further inputs if it takes any, without gradients and remove the hooks, even if it fails."""
    try:
        with torch.no_grad():
            model(x, *others)
    finally:
        for handle in handles:
            handle.remove()
