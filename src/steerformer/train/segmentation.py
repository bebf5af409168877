"""Segmentation: a label for every voxel, judged by how well structures lie on the true ones, case by case."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from lightning_fabric import Fabric
from torch import Tensor, nn

from steerformer.data import IGNORE
from steerformer.train.cases import CaseResult, mean_score, report, table
from steerformer.train.devices import gather
from steerformer.train.losses import Loss
from steerformer.train.overlap import class_structures, overlaps, regions
from steerformer.train.task import Task, Verdict

_FEW = 2
Predict = Callable[[nn.Module, Tensor], Tensor]
"""Logits ``(class, *space)`` of one case ``(channel, *space)`` by a model in eval mode."""


class Segmentation(Task):
    """Dice, over all voxels of an epoch in training, case by case in validation and test."""

    score: ClassVar[str] = "dice"

    def tally(self, logits: Tensor, labels: Tensor) -> list[float]:
        """Of each class but the background: voxels that are right, and predicted and true ones together."""
        counted = labels != IGNORE
        predicted, truth = logits.argmax(dim=1)[counted], labels[counted]
        classes = len(self.classes)
        voxels = (truth[predicted == truth], torch.cat((predicted, truth)))
        return [float(count) for x in voxels for count in x.bincount(minlength=classes)[1:]]

    def mean(self, tally: Sequence[float]) -> float:
        """Mean over the classes that were there or were predicted."""
        half = len(tally) // 2
        scores = [2 * right / size for right, size in zip(tally[:half], tally[half:], strict=True) if size]
        return sum(scores) / len(scores) if scores else 1.0

    def judge(self, fabric: Fabric, model: nn.Module, samples: Any, *, final: bool = False) -> Verdict:
        """Mean loss and Dice over cases; at the end also distances, each structure and each case."""
        share = range(fabric.global_rank, len(samples), fabric.world_size)
        mine = judge_cases(model, samples, share, classes=self.classes, loss=self.loss, distances=final)
        every = dict(pair for part in gather(fabric, list(zip(share, mine, strict=True))) for pair in part)
        results = [every[number] for number in range(len(samples))]
        loss = sum(result.loss for result in results) / len(results)
        figures = {f"test_{key}": value for key, value in report(results).items()} if final else {}
        return Verdict(loss, mean_score(results), figures, table(results) if final else None)

    def is_sound(self, model: nn.Module, samples: Any) -> bool:
        few = (samples[number][0] for number in range(min(len(samples), _FEW)))
        with _judged(model):
            return all(bool(whole(model, x).isfinite().all()) for x in few)


def judge_cases(
    model: nn.Module,
    cases: Any,
    numbers: Iterable[int],
    *,
    classes: Sequence[str],
    loss: Loss | None = None,
    distances: bool = True,
    predict: "Predict | None" = None,
    watch: Callable[[int, Tensor, CaseResult], object] | None = None,
) -> list[CaseResult]:
    """Compare what ``model`` says about some of ``cases`` with their labels, one whole case after the other.

    Dice and HD95 are measured on the grid of the prepared cases, not on that of the scans. A structure of the scan of
    which preparing left nothing, and nothing was predicted, is missed.

    Args:
        cases: with ``cases[i] -> (x, labels)``, ``names``, ``spacing(i)`` and ``present(i)``, the classes of the scan;
            they may differ in shape.
        loss: to be measured beside; 0 without.
        distances: measure HD95, too, which takes time.
        predict: how to get logits, where a case is too large for one go; :func:`whole` if not given.
        watch: is told the number, the predicted labels and the result of each case.
    """
    structures, joined = class_structures(classes), regions(classes)
    results = []
    with _judged(model):
        for number in numbers:
            x, labels = cases[number]
            logits = (predict or whole)(model, x)
            labels = labels.to(logits.device)
            cost = loss(logits[None].float(), labels[None]).item() if loss else 0.0
            predicted = logits.argmax(dim=0)
            spacing = tuple(cases.spacing(number)) if distances else None
            known = cases.present(number)
            parts = (overlaps(predicted, labels, s, spacing=spacing, present=known) for s in (structures, joined))
            results.append(CaseResult(cases.names[number], cost, *parts))
            if watch:
                watch(number, predicted.cpu(), results[-1])
    return results


def whole(model: nn.Module, x: Float[Tensor, "channel *space"]) -> Float[Tensor, "class *space"]:
    """Logits of a whole case in one go."""
    like = next(model.parameters(), torch.zeros(()))
    return model(x.to(like)[None])[0]


@contextmanager
def _judged(model: nn.Module) -> Any:
    """The model in eval mode, without gradients, and then as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
