"""Samples and cases on which a run is checked."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from steerformer.data import DataConfig, SegmentationDataset
from steerformer.io.scans import Scan


def upright(config: DataConfig) -> DataConfig:
    """The same data with upright test samples, which are then rotated by known angles."""
    has_key = "test_rotation" in type(config).model_fields
    changed: DataConfig = config.model_copy(update={"test_rotation": "none"}) if has_key else config
    return changed


def some_samples(dataset: Dataset[Any], count: int) -> tuple[Tensor, Tensor]:
    """``count`` samples spread evenly over a data set (all of a smaller one), and their labels."""
    samples = [dataset[i] for i in _spread(dataset, count)]
    return torch.stack([x for x, _ in samples]), torch.tensor([label for _, label in samples])


def some_cases(cases: SegmentationDataset, count: int) -> list[Scan]:
    """``count`` whole cases with their labels, spread evenly as :func:`some_samples` spreads samples."""
    return [cases.scan(i) for i in _spread(cases, count)]


def _spread(dataset: Dataset[Any], count: int) -> list[int]:
    size = len(dataset)  # type: ignore[arg-type]
    if not size:
        raise ValueError("there are no samples to check the model on.")
    chosen: list[int] = torch.linspace(0, size - 1, min(count, size)).round().long().tolist()
    return chosen
