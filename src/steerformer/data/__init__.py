"""Data sets of images and volumes: rotated digits, furniture, and folders of one's own."""

from steerformer.data import modelnet10, rotated_mnist
from steerformer.data.base import DataError, Progress, Samples, Splits, ignore
from steerformer.data.config import DataConfig, FolderConfig, ModelNet10Config, RotatedMNISTConfig

__all__ = [
    "DataConfig",
    "DataError",
    "FolderConfig",
    "ModelNet10Config",
    "RotatedMNISTConfig",
    "Samples",
    "Splits",
    "load",
]


def load(config: RotatedMNISTConfig | ModelNet10Config | FolderConfig, progress: Progress = ignore) -> Splits:
    """The samples that ``config`` describes; what has to be prepared is prepared once and kept."""
    if isinstance(config, RotatedMNISTConfig):
        return rotated_mnist.load(config, progress)
    if isinstance(config, ModelNet10Config):
        return modelnet10.load(config, progress)
    raise DataError("folders cannot be read yet.")
