"""Segmentation of a scan on its own grid: preprocess, predict, and map the result back."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from steerformer.data.config import SegmentationDataConfig
from steerformer.data.preprocessing import Preprocessed, preprocess
from steerformer.infer.inputs import Input, array_scan, modality_files
from steerformer.infer.memory import memory_budget
from steerformer.infer.window_memory import WindowMemory
from steerformer.infer.windows import predict_labels, predict_logits
from steerformer.io.modalities import group_modalities
from steerformer.io.scans import Scan, read_scan
from steerformer.models import Model
from steerformer.runs.run_folder import RunFolder
from steerformer.runs.spacing_range import adapt_to_spacing, resampled_line

# Bytes per voxel of a scan that are needed after the last window, until everything is written.
_LABELS = 8
_SCORES = 12  # to find the best class, one class at a time
_PROBABILITY = 16  # per class: restored, and the copies made to write a file


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Predicted labels and, if requested, probabilities, on the grid of the scan."""

    labels: Integer[Tensor, "*space"]
    probabilities: Float[Tensor, "classes *space"] | None
    """Cropped voxels are background with probability 1."""


def segment(
    model: Model,
    scan: Scan,
    config: SegmentationDataConfig,
    *,
    probabilities: bool = False,
    memory: int | None = None,
    overlap: float = 0.25,
    progress: Callable[[float], object] = lambda share: None,
    window_memory: WindowMemory | None = None,
) -> Segmentation:
    """Preprocess a scan as in training, predict, and map the result back to the scan's grid.

    If the scan was resampled, scores are resampled back, not labels: outlines are smoother then. For the other options
    see :func:`~steerformer.infer.predict_labels`.
    """
    case = preprocess(scan.x, scan.spacing, config)
    window_memory = window_memory or WindowMemory(model)
    is_resampled = tuple(case.x.shape[1:]) != tuple(part.stop - part.start for part in case.box)
    needs_scores = probabilities or is_resampled
    per_voxel = _LABELS + needs_scores * _SCORES + probabilities * _PROBABILITY * int(model.out_type.channels)
    options: dict[str, Any] = {
        **{"memory": memory, "overlap": overlap, "progress": progress, "window_memory": window_memory},
        "later": per_voxel * math.prod(case.shape),
    }
    if not needs_scores:
        return Segmentation(case.restore(predict_labels(model, case.x, **options)), None)
    logits = predict_logits(model, case.x, **options)
    labels = _best_class(case, logits)
    return Segmentation(labels, _probabilities(case, logits) if probabilities else None)


def segment_inputs(
    run: RunFolder,
    items: Sequence[Input],
    *,
    spacing: Sequence[float] | None = None,
    probabilities: bool = False,
    memory: int | None = None,
    notify: Callable[[str], object] = lambda line: None,
) -> list[Segmentation]:
    """Segment files or arrays (channels, \\*space); ``spacing`` is the voxel spacing of arrays.

    An item may be the files of the modalities of one scan; a flat list of such files is grouped by their names. Scans
    with other voxels than the training cases are resampled to theirs; ``notify`` is called with one line that says so.
    """
    config, model, window_memory = run.config.data, run.model, WindowMemory(run.model)
    assert isinstance(config, SegmentationDataConfig)
    found, resampled = [], {}
    for number, item in enumerate(_grouped(items, model.config.in_channels)):
        files = modality_files(item)
        if files is None:
            scan = array_scan(item, model, spacing, name=f"array {number}")  # type: ignore[arg-type]
        else:
            source = files[0] if len(files) == 1 else files
            scan = read_scan(source, model.config.in_channels, dim=model.in_type.group.dim)
        limit = memory_budget() if memory is None else memory
        options: dict[str, Any] = {"probabilities": probabilities, "memory": limit, "window_memory": window_memory}
        is_stated = scan.geometry is not None or (files is None and spacing is not None)
        adapted = adapt_to_spacing(config, run.spacing, scan.spacing, name=scan.path, is_stated=is_stated)
        if adapted is not config:
            resampled[scan.name] = scan.spacing
        found.append(segment(model, scan, adapted, **options))
    if resampled and run.spacing:
        notify(resampled_line(resampled, run.spacing))
    return found


def _grouped(items: Sequence[Input], channels: int) -> Sequence[Input]:
    """The items, or the modalities of each scan if all items are files and some belong together."""
    if not all(isinstance(item, str | Path) for item in items):
        return items
    scans = group_modalities([Path(item) for item in items], channels)  # type: ignore[arg-type]
    return scans if any(len(scan) > 1 for scan in scans) else items


def _best_class(case: Preprocessed, logits: Tensor) -> Tensor:
    """The class with the highest score in every voxel of the scan, restoring one class at a time to save memory."""
    best = case.restore(logits[:1])[0].clone()  # may share memory with the logits, which are still needed
    labels = torch.zeros(case.shape, dtype=torch.uint8 if len(logits) <= 256 else torch.int16)
    for label in range(1, len(logits)):
        score = case.restore(logits[label : label + 1])[0]
        labels.masked_fill_(score > best, label)
        torch.maximum(best, score, out=best)
    whole = torch.zeros_like(labels)  # cropped voxels are background
    whole[case.box] = labels[case.box]
    return whole


def _probabilities(case: Preprocessed, logits: Tensor) -> Tensor:
    """Softmax in place: a second copy of all classes may not fit. Cropped voxels are background."""
    found = case.restore(logits)
    for plane in found.unbind(1):
        plane.copy_(plane.softmax(0))
    outside = torch.ones(case.shape, dtype=torch.bool)
    outside[case.box] = False
    if outside.any():
        for label, values in enumerate(found):
            values.masked_fill_(outside, float(label == 0))
    return found
