"""Overlap of predicted and true structures: Dice, and HD95 where both exist."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from steerformer.data import IGNORE
from steerformer.metrics.hausdorff import hd95


@dataclass(frozen=True)
class Overlap:
    """Dice and HD95 of one structure in one case."""

    outcome: Literal["found", "missed", "spurious", "absent"]
    """missed: false negative, in the truth but not predicted at all; spurious: false positive, predicted but not in
    the truth; absent: in neither."""
    dice: float | None
    """0 if missed or spurious; ``None`` if absent, which says nothing about the model."""
    hd95: float | None
    """In the unit of the spacing; ``None`` if one of the surfaces does not exist, or if it was not requested."""


def overlap(
    predicted: Bool[Tensor, "*space"], truth: Bool[Tensor, "*space"], *, spacing: Sequence[float] | None
) -> Overlap:
    r"""Dice of two masks, $2 |P \cap T| / (|P| + |T|)$, and HD95 if the voxel spacing is given."""
    size, true_size = int(predicted.sum()), int(truth.sum())
    if not size + true_size:
        return Overlap("absent", None, None)
    if not size or not true_size:
        return Overlap("missed" if true_size else "spurious", 0.0, None)
    score = 2 * int((predicted & truth).sum()) / (size + true_size)
    return Overlap("found", score, hd95(predicted, truth, spacing) if spacing else None)


def overlaps(
    predicted: Int[Tensor, "*space"],
    labels: Int[Tensor, "*space"],
    structures: dict[str, tuple[int, ...]],
    *,
    spacing: Sequence[float] | None = None,
    present: Collection[int] = (),
) -> dict[str, Overlap]:
    """:func:`overlap` of each structure, a union of labels; voxels labeled ``IGNORE`` are left out.

    Labels in ``present`` exist in the scan even if the grid is too coarse to show them: such a structure is missed,
    not absent.
    """
    valid = labels != IGNORE
    found = {}
    for name, values in structures.items():
        members = torch.tensor(values, device=labels.device)
        masks = (torch.isin(x, members) & valid for x in (predicted, labels))
        found[name] = overlap(*masks, spacing=spacing)
        if found[name].outcome == "absent" and not set(values).isdisjoint(present):
            found[name] = Overlap("missed", 0.0, None)
    return found


def class_structures(classes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Each class but the background as a structure, by name."""
    return {name: (label,) for label, name in enumerate(classes) if label}


def tumor_regions(classes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The nested regions of BraTS (enhancing, core, whole), if these are the classes of a brain tumor.

    >>> tumor_regions(("background", "edema", "non-enhancing tumor", "enhancing tumour"))
    {'enhancing': (3,), 'core': (2, 3), 'whole': (1, 2, 3)}
    >>> tumor_regions(("background", "anterior", "posterior"))
    {}
    """
    parts = class_structures(classes)
    edema = [label for name, (label,) in parts.items() if re.search("edema", name, re.IGNORECASE)]
    enhancing = [label for name, (label,) in parts.items() if re.match(r"\W*enhancing", name, re.IGNORECASE)]
    if len(edema) != 1 or len(enhancing) != 1:
        return {}
    core = tuple(label for (label,) in parts.values() if label not in edema)
    return {"enhancing": tuple(enhancing), "core": core, "whole": tuple(label for (label,) in parts.values())}
