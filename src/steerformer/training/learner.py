"""Model, optimizer and EMA: one optimizer step, and the state for a checkpoint."""

from collections.abc import Sequence
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from steerformer.runs.config import TrainingConfig
from steerformer.training.ema import EMA
from steerformer.training.losses import deeply_supervised
from steerformer.training.optimizer import make_optimizer, set_learning_rate
from steerformer.training.tasks import Task


class Learner:
    """Model, optimizer and EMA on the devices of ``fabric``."""

    def __init__(self, fabric: Fabric, model: nn.Module, config: TrainingConfig, task: Task) -> None:
        self.fabric, self.config, self.model, self.task = fabric, config, model, task
        self.module, self.optimizer = fabric.setup(model, make_optimizer(model, config))
        self.ema = EMA(model, config.ema) if config.ema is not None else None

    @property
    def result(self) -> nn.Module:
        """The model to evaluate and save: the EMA if there is one."""
        return self.ema.module if self.ema else self.model

    def step(self, parts: Sequence[tuple[Tensor, Tensor]], rate: float) -> tuple[float, list[float]]:
        """One optimizer step with learning rate ``rate``; mean loss and counts of this process before the update."""
        config, fabric = self.config, self.fabric
        loss, counts = 0.0, []
        for i, (x, labels) in enumerate(parts):
            with fabric.no_backward_sync(self.module, enabled=i < len(parts) - 1):
                logits, part_loss = self._logits_and_loss(x, labels)
                part_loss = part_loss / len(parts)
                fabric.backward(part_loss)
            loss += part_loss.item()
            counts.append(self.task.counts(logits.detach(), labels))
        if config.clip is not None:
            fabric.clip_gradients(self.module, self.optimizer, max_norm=config.clip, error_if_nonfinite=False)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema:
            self.ema.update_parameters(self.model)
        return loss, [sum(numbers) for numbers in zip(*counts, strict=True)]

    def _logits_and_loss(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, of the finest level if there are several, and the loss."""
        logits = self.module(x)
        if logits.ndim == labels.ndim + 1:
            return logits, self.task.loss(logits, labels)
        return logits[:, 0], deeply_supervised(self.task.loss, logits, labels)

    def is_finite(self) -> bool:
        """Whether all weights and running statistics are finite, including those of the EMA."""
        models = [self.model, self.ema.module] if self.ema else [self.model]
        return all(bool(value.isfinite().all()) for model in models for value in model.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on, except random numbers."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.state_dict() if self.ema else None,
            "scaler": self.fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state_dict`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["scaler"])
        if self.ema:
            self.ema.load_state_dict(state["ema"])
