"""Test-time averaging: probabilities over several rotations of each input."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from steerformer.audit.rotations import turn


def averaged_probabilities(
    model: nn.Module,
    dataset: Dataset[Any],
    rotations: Sequence[Tensor],
    *,
    mode: str = "bilinear",
    batch_size: int = 256,
    progress: Callable[[int], None] = lambda samples: None,
) -> tuple[Tensor, Tensor, float]:
    """Mean of the softmax over ``rotations`` of each sample, ``(sample, class)``, the labels, and the mean accuracy.

    A mean of probabilities, not of logits: one rotation that is sure of itself cannot outvote all others. The mean
    accuracy is that of the single answers, which is what the paper averages.
    """
    device = next(model.parameters()).device
    means, labels, right = [], [], 0
    with torch.no_grad():
        for x, targets in DataLoader(dataset, batch_size=batch_size):
            x = x.to(device)
            views = [model(turn(model, x, R, mode=mode)).softmax(1) for R in rotations]
            means.append(torch.stack(views).mean(0).cpu())
            labels.append(torch.as_tensor(targets))
            right += sum(int((view.argmax(1).cpu() == labels[-1]).sum()) for view in views)
            progress(len(x))
    return torch.cat(means), torch.cat(labels), right / (len(rotations) * sum(map(len, labels)))
