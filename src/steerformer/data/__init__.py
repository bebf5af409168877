"""Data sets of images and volumes: rotated digits, furniture, and folders of one's own."""

from steerformer.data import clouds, digits, folder, modelnet10, rotated_mnist
from steerformer.data.base import DataError, Progress, Samples, Splits, ignore
from steerformer.data.config import DataConfig, FolderConfig, ModelNet10Config, RotatedMNISTConfig
from steerformer.data.files import read_file

__all__ = [
    "DataConfig",
    "DataError",
    "FolderConfig",
    "ModelNet10Config",
    "RotatedMNISTConfig",
    "Samples",
    "Splits",
    "describe",
    "load",
    "read_file",
]


def load(config: RotatedMNISTConfig | ModelNet10Config | FolderConfig, progress: Progress = ignore) -> Splits:
    """The samples that ``config`` describes; what has to be prepared is prepared once and kept."""
    if isinstance(config, RotatedMNISTConfig):
        return rotated_mnist.load(config, progress)
    if isinstance(config, ModelNet10Config):
        return modelnet10.load(config, progress)
    return folder.load(config, progress)


def describe(config: RotatedMNISTConfig | ModelNet10Config | FolderConfig) -> str:
    """What there is to load from, in a few words; a :class:`DataError` that says what is missing and where it is."""
    if isinstance(config, RotatedMNISTConfig):
        return digits.find(config.root).describe()
    if isinstance(config, ModelNet10Config):
        return clouds.find(config.root).describe()
    return folder.find(config.root).describe()
