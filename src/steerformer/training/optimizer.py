"""The optimizer, and the learning rate as a function of the step alone: there is no scheduler state to resume."""

import math

from torch import nn, optim

from steerformer.runs.config import TrainingConfig


def make_optimizer(model: nn.Module, config: TrainingConfig) -> optim.Optimizer:
    """AdamW without weight decay for gains and biases, or the paper's Adam with L2 on everything."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if config.optimizer == "adam":
        return optim.Adam(parameters.values(), lr=config.learning_rate, weight_decay=config.weight_decay)
    # complex biases have two axes
    undecayed = {name for name, p in parameters.items() if p.ndim <= 1 or name.endswith("bias")}
    groups = [
        {"params": [p for name, p in parameters.items() if name not in undecayed], "weight_decay": config.weight_decay},
        {"params": [p for name, p in parameters.items() if name in undecayed], "weight_decay": 0.0},
    ]
    return optim.AdamW([group for group in groups if group["params"]], lr=config.learning_rate)


def learning_rate(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Learning rate of a step, counted from 0 over the whole run."""
    return config.learning_rate * _factor(config, step, steps_per_epoch)


def set_learning_rate(optimizer: optim.Optimizer, value: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = value


def _factor(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    total = config.epochs * steps_per_epoch
    warmup = min(config.warmup, config.epochs / 2) * steps_per_epoch
    if config.schedule == "step":
        return config.step_factor ** (step // steps_per_epoch // config.step_every)
    if config.schedule == "onecycle":
        return _one_cycle(step, max(warmup - 1, 0.3 * total - 1, 0.0), total - 1)
    if step < warmup:
        return (step + 1) / math.ceil(warmup)
    if config.schedule == "constant":
        return 1.0
    return 1.0 - _ease((step - warmup) / (total - warmup))


def _one_cycle(step: int, top: float, last: int) -> float:
    """As torch's OneCycleLR: from 1/25 up to 1 at step ``top``, then down to 4e-6 at step ``last``."""
    if step <= top:
        return 0.04 + 0.96 * _ease(step / top if top else 1.0)
    return 1.0 - (1.0 - 4e-6) * _ease((step - top) / (last - top))


def _ease(share: float) -> float:
    """Half a cosine from 0 to 1."""
    return (1 - math.cos(math.pi * min(share, 1.0))) / 2
