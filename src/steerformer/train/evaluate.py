"""Logits of a data set, and what they say: accuracy, loss, confusion."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader


def predict_logits(
    model: nn.Module, dataset: Any, *, batch_size: int = 256, progress: Callable[[int], object] | None = None
) -> Float[Tensor, "sample class"]:
    """Logits of all samples, in order and in eval mode; on the CPU, whatever the device of the model.

    Args:
        dataset: samples ``(x, label)``, such as those of :func:`steerformer.data.load`; labels are not looked at.
        progress: called after each batch with the number of samples it had.
    """
    like = next(model.parameters(), torch.zeros(()))
    # a generator of its own: the loader would else draw from the global random numbers, which training needs
    loader = DataLoader(dataset, batch_size=batch_size, generator=torch.Generator())
    training = model.training
    model.eval()
    logits = []
    try:
        with torch.no_grad():
            for x, _ in loader:
                logits.append(model(x.to(like)).cpu())
                if progress:
                    progress(len(x))
    finally:
        model.train(training)
    return torch.cat(logits)


def accuracy(logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"]) -> float:
    """Share of samples whose largest logit is that of their class."""
    return (logits.argmax(dim=1) == labels).double().mean().item()


def mean_loss(logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"]) -> float:
    """Mean cross-entropy."""
    return F.cross_entropy(logits.double(), labels).item()


def confusion(
    logits: Float[Tensor, "sample class"], labels: Int[Tensor, "sample"], classes: int
) -> Int[Tensor, "true predicted"]:
    """How many samples of each class (rows) were taken for each class (columns)."""
    cells = labels * classes + logits.argmax(dim=1)
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)
