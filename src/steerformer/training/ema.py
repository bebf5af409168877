"""Exponential moving average (EMA) of the weights."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class EMA(AveragedModel):
    """EMA of weights and running statistics, ``a <- d a + (1 - d) w``, starting from the weights of ``model``.

    The decay warms up, ``d = min(decay, (1 + step) / (10 + step))``, so that the initial weights are soon discounted.
    Only what a state dict holds is averaged: torch's own average would pass over all constants of the layers, which are
    many times as large as the weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model)
        self.decay = decay
        self.n_averaged.fill_(1)  # the initial weights count

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Average in the weights of ``model``."""
        step = int(self.n_averaged)
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        pairs = list(zip(self.module.state_dict().values(), model.state_dict().values(), strict=True))
        weights = [(average, value) for average, value in pairs if average.is_floating_point()]
        torch._foreach_lerp_([average for average, _ in weights], [value for _, value in weights], share)
        for average, value in pairs:
            if not average.is_floating_point():  # a counter
                average.copy_(value)
        self.n_averaged += 1
