"""Checks of the input shape of classifiers."""

from torch import Tensor

from steerformer.groups import GROUPS
from steerformer.models.config import ClassifierConfig, CNNConfig


def require_size(config: ClassifierConfig | CNNConfig, x: Tensor) -> None:
    """Raise ``ValueError`` unless ``x`` is a batch of the configured channels and size."""
    expected = (config.in_channels, *(config.size,) * GROUPS[config.group].dim)
    if tuple(x.shape[1:]) != expected:
        raise ValueError(
            f"this model takes a batch of shape (batch, {', '.join(map(str, expected))}), got {tuple(x.shape)}; resize "
            f"the input, or build a model with other size and in_channels."
        )
