"""A model that learns: one step of the optimizer, and all that has to be kept of it."""

from collections.abc import Sequence
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from steerformer.train.average import Average
from steerformer.train.config import TrainingConfig
from steerformer.train.schedule import make_optimizer, set_learning_rate
from steerformer.train.task import Task


class Learner:
    """Model, optimizer and moving average on the devices of ``fabric``."""

    def __init__(self, fabric: Fabric, model: nn.Module, config: TrainingConfig, task: Task) -> None:
        self.fabric, self.config, self.model, self.task = fabric, config, model, task
        self.module, self.optimizer = fabric.setup(model, make_optimizer(model, config))
        self.average = Average(model, config.ema) if config.ema is not None else None

    @property
    def result(self) -> nn.Module:
        """The model to judge and to keep: the average if there is one."""
        return self.average.model if self.average else self.model

    def step(self, parts: Sequence[tuple[Tensor, Tensor]], rate: float) -> tuple[float, list[float]]:
        """One step with learning rate ``rate``; mean loss and tally of the task of this process before it."""
        config, fabric = self.config, self.fabric
        loss, tallies = 0.0, []
        for i, (x, labels) in enumerate(parts):
            with fabric.no_backward_sync(self.module, enabled=i < len(parts) - 1):
                logits = self.module(x)
                share = self.task.loss(logits, labels) / len(parts)
                fabric.backward(share)
            loss += share.item()
            tallies.append(self.task.tally(logits.detach(), labels))
        if config.clip is not None:
            fabric.clip_gradients(self.module, self.optimizer, max_norm=config.clip, error_if_nonfinite=False)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average:
            self.average.update(self.model)
        return loss, [sum(numbers) for numbers in zip(*tallies, strict=True)]

    def is_finite(self) -> bool:
        """Whether all weights and running statistics are numbers, also those of the average."""
        models = [self.model, self.average.model] if self.average else [self.model]
        return all(bool(value.isfinite().all()) for model in models for value in model.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, except random numbers."""
        average = self.average and {"model": self.average.model.state_dict(), "steps": self.average.steps}
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": average,
            "scaler": self.fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as if :meth:`state_dict` had been taken a moment ago."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["scaler"])
        if self.average:
            self.average.model.load_state_dict(state["average"]["model"])
            self.average.steps = state["average"]["steps"]
