"""Classification metrics: accuracy, cross entropy, confusion matrix."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from steerformer.metrics.statistics import binomial_error


def accuracy(logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"]) -> float:
    """Share of samples whose largest logit is that of their class."""
    return (logits.argmax(dim=1) == labels).double().mean().item()


def mean_cross_entropy(logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"]) -> float:
    """Mean cross entropy, in double precision."""
    return F.cross_entropy(logits.double(), labels).item()


def confusion_matrix(
    logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"], classes: int
) -> Int[Tensor, "true predicted"]:
    """Number of samples of each true class (rows) predicted as each class (columns)."""
    cells = labels * classes + logits.argmax(dim=1)
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


@dataclass(frozen=True)
class ClassificationScores:
    """Accuracy with its standard error, per class, and the confusion matrix."""

    samples: int
    accuracy: float
    standard_error: float
    """Of the accuracy over samples: of one trained model, not over trainings."""
    per_class: dict[str, float | None]
    """Recall of each class; ``None`` for classes without samples."""
    confusion: list[list[int]]
    """Confusion matrix: true classes (rows), predicted classes (columns)."""

    def as_json(self) -> dict[str, Any]:
        """As written to ``evaluation-*.json``."""
        return asdict(self)


def classification_scores(
    scores: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"], classes: tuple[str, ...]
) -> ClassificationScores:
    """Compare the highest score of each sample with its label."""
    matrix = confusion_matrix(scores, labels, len(classes)).tolist()
    share = accuracy(scores, labels)
    counts = [sum(row) for row in matrix]
    recall = {name: matrix[i][i] / counts[i] if counts[i] else None for i, name in enumerate(classes)}
    return ClassificationScores(len(labels), share, binomial_error(share, len(labels)), recall, matrix)
