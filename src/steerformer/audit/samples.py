"""Which samples a run is tried on."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from steerformer.audit.sweep import Case
from steerformer.data import DataConfig
from steerformer.data.cases import Cases

_UPRIGHT: dict[str, Any] = {"rotate_test": False, "test_rotation": "none"}


def upright(config: DataConfig) -> DataConfig:
    """The same data with test samples as they stand, where the data set has them: to be turned by known angles."""
    known = {name: value for name, value in _UPRIGHT.items() if name in type(config).model_fields}
    changed: DataConfig = config.model_copy(update=known)
    return changed


def interpolation(config: DataConfig) -> str:
    """How samples are turned: volumes of zeros and ones by nearest neighbors, as in the paper, all others linearly."""
    is_binary = getattr(config, "occupancy", None) == "binary"
    return "nearest" if is_binary else "bilinear"


def some_samples(dataset: Dataset[Any], count: int) -> tuple[Tensor, Tensor]:
    """``count`` samples spread evenly over a data set (all of a smaller one), and their labels."""
    samples = [dataset[i] for i in _spread(dataset, count)]
    return torch.stack([x for x, _ in samples]), torch.tensor([label for _, label in samples])


def some_cases(cases: Cases, count: int) -> list[Case]:
    """``count`` whole cases with their labels, spread evenly as :func:`some_samples` spreads samples."""
    return [Case(cases.names[i], *cases[i], cases.spacing(i)) for i in _spread(cases, count)]


def _spread(dataset: Dataset[Any], count: int) -> list[int]:
    size = len(dataset)  # type: ignore[arg-type]
    if not size:
        raise ValueError("there are no samples to try the model on.")
    chosen: list[int] = torch.linspace(0, size - 1, min(count, size)).round().long().tolist()
    return chosen
