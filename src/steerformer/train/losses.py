"""What training makes small: cross entropy, Dice, focal, and sums of them; for samples and for voxels of cases."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from steerformer.data import IGNORE

_FOCUS = 2.0  # exponent of the focal loss, as its authors found best
_SMOOTH = 1.0  # voxels added to both sides of Dice's fraction: a structure that is not there has a gradient, a mild one

Loss = Callable[[Tensor, Tensor], Tensor]
"""Logits ``(batch, class, *space)`` and labels ``(batch, *space)`` to a mean over the batch."""


def make_loss(name: str, *, label_smoothing: float = 0.0) -> Loss:
    """The loss of that name, or the sum of several: ``cross_entropy+dice``."""
    entropy = partial(_cross_entropy, smoothing=label_smoothing)
    terms: dict[str, Loss] = {"cross_entropy": entropy, "dice": dice_loss, "focal": focal_loss}
    chosen = [terms[part] for part in loss_parts(name)]
    return chosen[0] if len(chosen) == 1 else lambda logits, labels: _added([term(logits, labels) for term in chosen])


def loss_parts(name: str) -> tuple[str, ...]:
    """The names in a sum; ``ValueError`` for one that there is not, or that is there twice.

    >>> loss_parts("cross_entropy + dice")
    ('cross_entropy', 'dice')
    """
    parts = tuple(part.strip() for part in name.split("+"))
    if not set(parts) <= {"cross_entropy", "dice", "focal"} or len(set(parts)) < len(parts):
        raise ValueError(
            f"known losses are cross_entropy, dice, focal and sums such as cross_entropy+dice, got {name!r}"
        )
    return parts


def dice_loss(logits: Float[Tensor, "batch class *space"], labels: Int[Tensor, "batch *space"]) -> Float[Tensor, ""]:
    r"""One minus the Dice score of the probabilities $p$, mean over samples and over all classes but the background.

    $$1 - \frac{2 \sum_x p_c(x) t_c(x) + 1}{\sum_x p_c(x) + \sum_x t_c(x) + 1}$$

    Sums run over the voxels that count, $t$ is 1 on the class and 0 elsewhere.
    """
    counted = labels != IGNORE
    classes = logits.shape[1]
    truth = F.one_hot(labels.where(counted, 0), classes).movedim(-1, 1).to(logits) * counted[:, None]
    shares = logits.softmax(dim=1) * counted[:, None]
    shares, truth = shares[:, 1:].flatten(2), truth[:, 1:].flatten(2)
    both, sizes = (shares * truth).sum(-1), shares.sum(-1) + truth.sum(-1)
    return (1 - (2 * both + _SMOOTH) / (sizes + _SMOOTH)).mean()


def focal_loss(logits: Float[Tensor, "batch class *space"], labels: Int[Tensor, "batch *space"]) -> Float[Tensor, ""]:
    r"""$-(1 - p)^2 \log p$ of the probability of the true class, mean over the voxels that count.

    Voxels that are right already weigh little, so the few of a small structure are heard.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    focused = (1 - (-losses).exp()) ** _FOCUS * losses  # 0 where ignored
    return focused.sum() / _count(labels)


def _cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float) -> Tensor:
    if bool((labels == IGNORE).all()):
        return logits.sum() * 0.0  # torch would divide by the number of voxels
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def _count(labels: Tensor) -> Tensor:
    return (labels != IGNORE).sum().clamp_min(1)


def _added(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum()
