"""From a scan as it is to labels that lie on it voxel by voxel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from steerformer.data.config import CasesConfig
from steerformer.data.prepare import Prepared, prepare
from steerformer.data.scans import Scan
from steerformer.infer.appetite import Appetite
from steerformer.infer.windows import predict_labels, predict_logits
from steerformer.models import Model

# Bytes for each voxel of a scan, beside what windows have left, until all is written.
_LABELS = 8
_SCORES = 12  # to find the best of them, class by class
_PROBABILITY = 16  # of each class: restored, and the copies that are made to write a file


@dataclass(frozen=True, eq=False)
class Segmented:
    """What was found in a scan, on its grid."""

    labels: Integer[Tensor, "*space"]
    probabilities: Float[Tensor, "classes *space"] | None
    """Only if asked for. Outside of what the model saw, the background has all."""


def segment(
    model: Model,
    scan: Scan,
    config: CasesConfig,
    *,
    probabilities: bool = False,
    memory: int | None = None,
    overlap: float = 0.25,
    progress: Callable[[float], object] = lambda share: None,
    appetite: Appetite | None = None,
) -> Segmented:
    """Prepare a scan as ``config`` says the model's training did, predict, and go back to the scan's own grid.

    Where the scan was resampled, it is scores that go back, not labels: outlines are smoother then. For the other
    options see :func:`~steerformer.infer.predict_labels`.
    """
    prepared = prepare(scan.x, scan.spacing, config)
    appetite = appetite or Appetite(model)
    is_resampled = tuple(prepared.x.shape[1:]) != tuple(part.stop - part.start for part in prepared.box)
    scored = probabilities or is_resampled
    each = _LABELS + scored * _SCORES + probabilities * _PROBABILITY * int(model.out_type.channels)
    options: dict[str, Any] = {"memory": memory, "overlap": overlap, "progress": progress, "appetite": appetite}
    later = each * math.prod(prepared.shape)
    if not scored:
        labels = predict_labels(model, prepared.x, **options, later=later)
        return Segmented(prepared.restore(labels), None)
    logits = predict_logits(model, prepared.x, **options, later=later)
    labels = _best(prepared, logits)
    return Segmented(labels, _probabilities(prepared, logits) if probabilities else None)


def _best(prepared: Prepared, logits: Tensor) -> Tensor:
    """The class with the highest score in every voxel of the scan; classes go back one at a time, to save memory."""
    best = prepared.restore(logits[:1])[0].clone()  # it may be the very logits, which are still needed
    labels = torch.zeros(prepared.shape, dtype=torch.uint8 if len(logits) <= 256 else torch.int16)
    for label in range(1, len(logits)):
        score = prepared.restore(logits[label : label + 1])[0]
        labels.masked_fill_(score > best, label)
        torch.maximum(best, score, out=best)
    whole = torch.zeros_like(labels)  # what was cropped is background
    whole[prepared.box] = labels[prepared.box]
    return whole


def _probabilities(prepared: Prepared, logits: Tensor) -> Tensor:
    """In the place of scores: a second copy of all classes may be too much. What was cropped is background."""
    found = prepared.restore(logits)
    for plane in found.unbind(1):
        plane.copy_(plane.softmax(0))
    outside = torch.ones(prepared.shape, dtype=torch.bool)
    outside[prepared.box] = False
    if outside.any():
        for label, values in enumerate(found):
            values.masked_fill_(outside, float(label == 0))
    return found
