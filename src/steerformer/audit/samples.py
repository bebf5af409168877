"""Which samples a run is tried on."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from steerformer.data import DataConfig

_UPRIGHT: dict[str, dict[str, Any]] = {"rotmnist": {"rotate_test": False}, "modelnet10": {"test_rotation": "none"}}


def upright(config: DataConfig) -> DataConfig:
    """The same data with test samples as they stand, where the data set has them: to be turned by known angles."""
    changed: DataConfig = config.model_copy(update=_UPRIGHT.get(config.name, {}))
    return changed


def interpolation(config: DataConfig) -> str:
    """How samples are turned: volumes of zeros and ones by nearest neighbours, as in the paper, all others linearly."""
    is_binary = getattr(config, "occupancy", None) == "binary"
    return "nearest" if is_binary else "bilinear"


def some_samples(dataset: Dataset[Any], count: int) -> tuple[Tensor, Tensor]:
    """``count`` samples spread evenly over a data set (all of a smaller one), and their labels."""
    size = len(dataset)  # type: ignore[arg-type]
    if not size:
        raise ValueError("there are no samples to try the model on.")
    chosen = torch.linspace(0, size - 1, min(count, size)).round().long().tolist()
    samples = [dataset[i] for i in chosen]
    return torch.stack([x for x, _ in samples]), torch.tensor([label for _, label in samples])
