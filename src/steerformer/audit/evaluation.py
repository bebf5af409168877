"""Accuracy with what is needed to judge it: how many samples, how sure, which classes."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from steerformer.train.evaluate import accuracy, confusion


@dataclass(frozen=True)
class Evaluation:
    """What predictions are worth."""

    samples: int
    accuracy: float
    standard_error: float
    """Of the accuracy, were the samples drawn anew: of one trained model, not of training again."""
    per_class: dict[str, float | None]
    """Share of each class that is recognized; none for classes without samples."""
    confusion: list[list[int]]
    """Samples of each class (rows) that were taken for each class (columns)."""

    def as_json(self) -> dict[str, Any]:
        """For ``evaluation-*.json``."""
        return asdict(self)


def judge(scores: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"], classes: tuple[str, ...]) -> Evaluation:
    """Compare the best score of each sample with its label."""
    matrix = confusion(scores, labels, len(classes)).tolist()
    share = accuracy(scores, labels)
    counts = [sum(row) for row in matrix]
    found = {name: matrix[i][i] / counts[i] if counts[i] else None for i, name in enumerate(classes)}
    return Evaluation(len(labels), share, standard_error(share, len(labels)), found, matrix)


def standard_error(share: float, count: int) -> float:
    r"""$\sqrt{p(1-p)/n}$.

    >>> round(standard_error(0.9, 900), 4)
    0.01
    """
    return math.sqrt(share * (1 - share) / count)
