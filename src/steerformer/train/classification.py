"""Classification: one label a sample, judged by the share of right answers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import Subset

from steerformer.train.devices import total
from steerformer.train.evaluate import confusion, mean_loss, predict_logits
from steerformer.train.task import Task, Verdict

_FEW = 8


class Classification(Task):
    """Right answers, counted."""

    score: ClassVar[str] = "accuracy"

    def tally(self, logits: Tensor, labels: Tensor) -> list[float]:
        """How many are right, of how many."""
        return [float((logits.argmax(dim=1) == labels).sum()), float(len(labels))]

    def mean(self, tally: Sequence[float]) -> float:
        right, samples = tally
        return right / samples

    def judge(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> Verdict:
        """Mean cross entropy, accuracy and, at the end, confusion."""
        share = range(fabric.global_rank, len(samples), fabric.world_size)
        classes = len(self.classes)
        sums, matrix = torch.zeros(1, dtype=torch.float64), torch.zeros(classes, classes, dtype=torch.int64)
        if len(share):
            logits = predict_logits(model, Subset(samples, share), batch_size=self.config.eval_batch_size)
            labels = samples.labels[list(share)]
            sums += mean_loss(logits, labels) * len(share)
            matrix += confusion(logits, labels, classes)
        sums, matrix = (total(fabric, x) for x in (sums, matrix))
        figures = {"confusion": matrix.tolist()} if final else {}
        return Verdict(sums.item() / len(samples), int(matrix.trace()) / len(samples), figures)

    def is_sound(self, model: nn.Module, samples: Any) -> bool:
        few = Subset(samples, range(min(len(samples), _FEW)))
        return bool(predict_logits(model, few, batch_size=self.config.eval_batch_size).isfinite().all())
