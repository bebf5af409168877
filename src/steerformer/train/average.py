"""A moving average of weights."""

import copy

import torch
from torch import nn


class Average:
    """Weights and running statistics averaged over steps, ``a <- d a + (1 - d) w``, in a model of their own.

    The decay starts low, ``d = min(decay, (1 + step) / (10 + step))``, so that the first weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model)
        self.decay = decay
        self.steps = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the weights of one more step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        ours, theirs = self.model.state_dict(), model.state_dict()
        floats = [name for name, value in ours.items() if value.is_floating_point()]
        torch._foreach_lerp_([ours[name] for name in floats], [theirs[name] for name in floats], 1 - decay)
        for name in ours.keys() - set(floats):  # counters
            ours[name].copy_(theirs[name])
