"""Exponential moving average (EMA) of the weights."""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class EMA(AveragedModel):
    """Exponential moving average (EMA) of the weights and running statistics of a model: ``a <- d a + (1 - d) w``.

    It starts from those of ``model``, which are soon discounted: the decay warms up,
    ``d = min(decay, (1 + step) / (10 + step))``. Only what a state dict holds is averaged: torch's own average would
    pass over all constants of the layers, which are many times as large as the weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model)
        self.decay = decay
        self.n_averaged.fill_(1)  # the initial weights count

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average with the weights of ``model``."""
        step = int(self.n_averaged)
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        pairs = list(zip(_state(self.module), _state(model), strict=True))
        averages, weights = zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)
        torch._foreach_lerp_(averages, weights, share)
        for average, value in pairs:
            if not average.is_floating_point():  # a counter
                average.copy_(value)
        self.n_averaged += 1


def _state(model: nn.Module) -> list[Tensor]:
    """Weights and running statistics; those that layers share only once."""
    return list({id(value): value for value in model.state_dict(keep_vars=True).values()}.values())
