"""How well a predicted structure lies on the true one: Dice, and the 95th percentile of the Hausdorff distance."""

import importlib.util
import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from steerformer.data import IGNORE


@dataclass(frozen=True)
class Overlap:
    """One structure of one case."""

    outcome: Literal["found", "missed", "invented", "absent"]
    """missed: in the truth, and nothing of it was predicted; invented: the other way round; absent: in neither."""
    dice: float | None
    """0 where missed or invented; none where absent, which says nothing about the model."""
    hd95: float | None
    """In the unit of the spacing; none where there is no second surface to measure to, and where it was not asked."""


def overlap(
    predicted: Bool[Tensor, "*space"], truth: Bool[Tensor, "*space"], *, spacing: Sequence[float] | None
) -> Overlap:
    r"""Compare two masks: $2 |P \cap T| / (|P| + |T|)$, and the distance if the size of a voxel is given."""
    size, true_size = int(predicted.sum()), int(truth.sum())
    if not size + true_size:
        return Overlap("absent", None, None)
    if not size or not true_size:
        return Overlap("missed" if true_size else "invented", 0.0, None)
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
    """:func:`overlap` of each structure, which is one label or several; where the truth says ``IGNORE``, none is.

    Labels that are ``present`` were in the scan, though the grid may be too coarse to show them: a structure of these
    is not absent but missed.
    """
    counted = labels != IGNORE
    found = {}
    for name, values in structures.items():
        members = torch.tensor(values, device=labels.device)
        masks = (torch.isin(x, members) & counted for x in (predicted, labels))
        found[name] = overlap(*masks, spacing=spacing)
        if found[name].outcome == "absent" and not set(values).isdisjoint(present):
            found[name] = Overlap("missed", 0.0, None)
    return found


def hd95(predicted: Bool[Tensor, "*space"], truth: Bool[Tensor, "*space"], spacing: Sequence[float]) -> float:
    """From how far 95 % of one surface lie from the other at most, the worse of both ways, by MONAI.

    A surface is what erosion by one voxel takes away. Both masks must have a voxel.
    """
    require_monai()
    from monai.metrics.hausdorff_distance import compute_hausdorff_distance  # here, because it takes seconds

    one, other = (mask.cpu()[None, None].float() for mask in (predicted, truth))
    with warnings.catch_warnings():
        # MONAI 1.6 gives itself an argument that it has deprecated
        warnings.filterwarnings("ignore", message=".*always_return_as_numpy", category=FutureWarning)
        return compute_hausdorff_distance(
            one, other, include_background=True, percentile=95, spacing=[float(size) for size in spacing]
        ).item()


def require_monai() -> None:
    """A ``ValueError`` of one line where it is not installed."""
    if importlib.util.find_spec("monai") is None:
        raise ValueError("segmentations are judged by distances of MONAI: pip install 'steerformer[medical]'.")


def class_structures(classes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Each class but the first, the background, by its name."""
    return {name: (label,) for label, name in enumerate(classes) if label}


def regions(classes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The regions by which brain tumours are judged, if that is what the classes are: each holds the one before.

    >>> regions(("background", "edema", "non-enhancing tumor", "enhancing tumour"))
    {'enhancing': (3,), 'core': (2, 3), 'whole': (1, 2, 3)}
    >>> regions(("background", "anterior", "posterior"))
    {}
    """
    parts = class_structures(classes)
    edema = [label for name, (label,) in parts.items() if re.search("edema", name, re.IGNORECASE)]
    bright = [label for name, (label,) in parts.items() if re.match(r"\W*enhancing", name, re.IGNORECASE)]
    if len(edema) != 1 or len(bright) != 1:
        return {}
    core = tuple(label for (label,) in parts.values() if label not in edema)
    return {"enhancing": tuple(bright), "core": core, "whole": tuple(label for (label,) in parts.values())}
