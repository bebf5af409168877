"""Sizes of the grids inside a classifier, steerable or not."""

from torch import Tensor

from steerformer.groups import GROUPS
from steerformer.models.config import ClassifierConfig, CNNConfig


def sizes_after_pooling(config: ClassifierConfig | CNNConfig) -> list[int]:
    """Voxels along each side in every block; pooling halves them, and an odd one is left out."""
    return [config.size // 2**i for i in range(len(config.widths))]


def width_of_block(config: ClassifierConfig | CNNConfig, block: int) -> int:
    """Width of the kernels in a block."""
    sizes = config.kernel_size
    return sizes if isinstance(sizes, int) else sizes[block]


def require_size(config: ClassifierConfig | CNNConfig, x: Tensor) -> None:
    """Raise ``ValueError`` unless ``x`` is a batch of what the configuration was made for."""
    expected = (config.in_channels, *(config.size,) * GROUPS[config.group].dim)
    if tuple(x.shape[1:]) != expected:
        raise ValueError(
            f"this model takes a batch of shape (batch, {', '.join(map(str, expected))}), got {tuple(x.shape)}; resize "
            f"the input, or build a model with another size and in_channels."
        )
