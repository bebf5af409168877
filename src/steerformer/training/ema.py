"""Exponential moving average (EMA) of the weights, by torch's ``AveragedModel``."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def make_ema(model: nn.Module, decay: float) -> AveragedModel:
    """EMA of weights and running statistics, ``a <- d a + (1 - d) w``, starting from the weights of ``model``.

    The decay warms up, ``d = min(decay, (1 + step) / (10 + step))``, so that the initial weights are soon discounted.
    """

    @torch.no_grad()
    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], step: Tensor | int) -> None:
        if averages[0].is_floating_point():
            current = min(decay, (1 + int(step)) / (10 + int(step)))
            torch._foreach_lerp_(list(averages), list(weights), 1 - current)
        else:  # counters
            torch._foreach_copy_(list(averages), list(weights))

    ema = AveragedModel(model, multi_avg_fn=update, use_buffers=True)
    ema.n_averaged.fill_(1)  # the initial weights count; at 0, the first update would replace them
    return ema
