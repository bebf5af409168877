"""Losses: cross entropy, Dice, focal, and sums of them; for samples and for voxels, leaving out ``IGNORE``."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from steerformer.data import IGNORE
from steerformer.infer.evaluation import Loss
from steerformer.runs.config import loss_terms

_FOCUS = 2.0  # exponent recommended by the authors of the focal loss
_SMOOTH = 1.0  # added to numerator and denominator of Dice: an absent structure then has a small gradient


def make_loss(name: str, *, label_smoothing: float = 0.0) -> Loss:
    """The loss of that name, or the sum of several: ``cross_entropy+dice``."""
    entropy = partial(_cross_entropy, smoothing=label_smoothing)
    terms: dict[str, Loss] = {"cross_entropy": entropy, "dice": dice_loss, "focal": focal_loss}
    chosen = [terms[part] for part in loss_terms(name)]
    return chosen[0] if len(chosen) == 1 else lambda logits, labels: _added([term(logits, labels) for term in chosen])


def deeply_supervised(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of logits with an axis of levels, ``(batch, level, class, ...)``: level ``n`` has weight ``2^-n``."""
    weights = [2.0**-level for level in range(logits.shape[1])]
    terms = [weight * loss(logits[:, level], labels) for level, weight in enumerate(weights)]
    return _added(terms) / sum(weights)


def dice_loss(logits: Float[Tensor, "batch class *space"], labels: Int[Tensor, "batch *space"]) -> Float[Tensor, ""]:
    r"""One minus the Dice score of the probabilities $p$, mean over samples and over all classes but the background.

    $$1 - \frac{2 \sum_x p_c(x) t_c(x) + 1}{\sum_x p_c(x) + \sum_x t_c(x) + 1}$$

    Sums run over valid voxels; $t$ is 1 on the class and 0 elsewhere.
    """
    structures = torch.arange(1, logits.shape[1], device=labels.device)
    truth = (labels.flatten(1)[:, None] == structures[:, None]).to(logits)
    shares = logits.softmax(dim=1)[:, 1:].flatten(2) * (labels != IGNORE).flatten(1)[:, None]
    both, sizes = (shares * truth).sum(-1), shares.sum(-1) + truth.sum(-1)
    return (1 - (2 * both + _SMOOTH) / (sizes + _SMOOTH)).mean()


def focal_loss(logits: Float[Tensor, "batch class *space"], labels: Int[Tensor, "batch *space"]) -> Float[Tensor, ""]:
    r"""$-(1 - p)^2 \log p$ of the probability of the true class, mean over valid voxels.

    Voxels that are already classified well weigh little, so that small structures count.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    focused = (1 - (-losses).exp()) ** _FOCUS * losses  # 0 where ignored
    return focused.sum() / _num_valid(labels)


def _cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float) -> Tensor:
    if bool((labels == IGNORE).all()):
        return logits.sum() * 0.0  # torch would divide by zero valid voxels
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def _num_valid(labels: Tensor) -> Tensor:
    return (labels != IGNORE).sum().clamp_min(1)


def _added(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum()
