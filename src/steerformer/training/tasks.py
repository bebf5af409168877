"""Tasks: the loss, the running score and the evaluation of classification and segmentation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import Subset

from steerformer.data import IGNORE
from steerformer.infer.classification import classify
from steerformer.infer.evaluation import evaluate_cases, predict_whole
from steerformer.metrics.accuracy import confusion_matrix, mean_cross_entropy
from steerformer.metrics.case_scores import case_table, mean_dice, summarize_cases
from steerformer.models.eval_mode import eval_mode
from steerformer.runs.compatibility import is_segmentation
from steerformer.runs.config import ExperimentConfig, TrainingConfig
from steerformer.training.distributed import gather, total
from steerformer.training.losses import make_loss

_FEW_SAMPLES, _FEW_CASES = 8, 2


@dataclass(frozen=True)
class SplitScores:
    """Loss and score of a model on a split."""

    loss: float
    score: float
    metrics: dict[str, Any] = field(default_factory=dict)
    """Further metrics, ready for JSON."""
    table: str | None = None
    """CSV with a line for each case."""


class Task(ABC):
    """What the training loop needs to know about the task.

    Args:
        config: names the loss.
        classes: names of the classes.
    """

    score: ClassVar[str]
    """Name of the score: from 0 to 1, higher is better."""

    def __init__(self, config: TrainingConfig, classes: tuple[str, ...]) -> None:
        self.config, self.classes = config, classes
        self.loss = make_loss(config.loss, label_smoothing=config.label_smoothing)

    @abstractmethod
    def counts(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Numbers whose sum over parts, processes and steps gives the score."""

    @abstractmethod
    def mean(self, counts: Sequence[float]) -> float:
        """The score of summed counts."""

    @abstractmethod
    def evaluate(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> SplitScores:
        """Evaluate the model, each process on its share; ``final`` is the test, with all metrics."""

    @abstractmethod
    def has_finite_logits(self, model: nn.Module, samples: Any) -> bool:
        """Whether the logits of a few samples are finite."""


class ClassificationTask(Task):
    """One class per sample, scored by accuracy."""

    score: ClassVar[str] = "accuracy"

    def counts(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Correct predictions, and all."""
        return [float((logits.argmax(dim=1) == labels).sum()), float(len(labels))]

    def mean(self, counts: Sequence[float]) -> float:
        correct, samples = counts
        return correct / samples

    def evaluate(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> SplitScores:
        """Mean cross entropy, accuracy and, in the final test, the confusion matrix."""
        share = range(fabric.global_rank, len(samples), fabric.world_size)
        classes = len(self.classes)
        sums, matrix = torch.zeros(1, dtype=torch.float64), torch.zeros(classes, classes, dtype=torch.int64)
        if len(share):
            logits = classify(model, Subset(samples, share), batch_size=self.config.eval_batch_size)
            labels = samples.labels[list(share)]
            sums += mean_cross_entropy(logits, labels) * len(share)
            matrix += confusion_matrix(logits, labels, classes)
        sums, matrix = (total(fabric, x) for x in (sums, matrix))
        metrics = {"confusion": matrix.tolist()} if final else {}
        return SplitScores(sums.item() / len(samples), int(matrix.trace()) / len(samples), metrics)

    def has_finite_logits(self, model: nn.Module, samples: Any) -> bool:
        few = Subset(samples, range(min(len(samples), _FEW_SAMPLES)))
        return bool(classify(model, few, batch_size=self.config.eval_batch_size).isfinite().all())


class SegmentationTask(Task):
    """One class per voxel, scored by Dice: over all voxels of an epoch in training, per case in validation and test."""

    score: ClassVar[str] = "dice"

    def counts(self, logits: Tensor, labels: Tensor) -> list[float]:
        """For each class but the background: correct voxels, and predicted plus true voxels."""
        predicted = logits.max(dim=1).indices  # argmax gives the same and takes 10 to 40 times longer here
        predicted.masked_fill_(labels == IGNORE, IGNORE)
        structures = range(1, len(self.classes))
        correct = [(predicted == label).logical_and_(labels == label).count_nonzero() for label in structures]
        sizes = [(predicted == label).count_nonzero() + (labels == label).count_nonzero() for label in structures]
        return [float(count) for count in (*correct, *sizes)]

    def mean(self, counts: Sequence[float]) -> float:
        """Mean over the classes that exist or were predicted."""
        half = len(counts) // 2
        scores = [2 * correct / size for correct, size in zip(counts[:half], counts[half:], strict=True) if size]
        return sum(scores) / len(scores) if scores else 1.0

    def evaluate(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> SplitScores:
        """Mean loss and Dice over cases; in the final test also HD95, each structure and each case."""
        share = range(fabric.global_rank, len(samples), fabric.world_size)
        own = evaluate_cases(model, samples, share, classes=self.classes, loss=self.loss, distances=final)
        scores = dict(pair for part in gather(fabric, list(zip(share, own, strict=True))) for pair in part)
        results = [scores[number] for number in range(len(samples))]
        loss = sum(result.loss for result in results) / len(results)
        metrics = {f"test_{key}": value for key, value in summarize_cases(results).items()} if final else {}
        return SplitScores(loss, mean_dice(results), metrics, case_table(results) if final else None)

    def has_finite_logits(self, model: nn.Module, samples: Any) -> bool:
        few = (samples[number][0] for number in range(min(len(samples), _FEW_CASES)))
        with eval_mode(model):
            return all(bool(predict_whole(model, x).isfinite().all()) for x in few)


def make_task(experiment: ExperimentConfig, classes: tuple[str, ...]) -> Task:
    """The task of the experiment's model."""
    kind = SegmentationTask if is_segmentation(experiment.model) else ClassificationTask
    return kind(experiment.training, classes)
