"""Data sets of images and volumes: rotated digits, furniture, photographs, scans, and folders of one's own."""

from steerformer.data import clouds, decathlon, digits, folder, modelnet10, pairs, ph2, rotated_mnist
from steerformer.data.base import DataError, Numbered, Progress, Samples, Splits, ignore
from steerformer.data.cases import IGNORE, Cases
from steerformer.data.config import (
    CasesConfig,
    DataConfig,
    DecathlonConfig,
    FolderConfig,
    ModelNet10Config,
    PairsConfig,
    PH2Config,
    RotatedMNISTConfig,
)
from steerformer.data.files import read_file

__all__ = [
    "IGNORE",
    "Cases",
    "CasesConfig",
    "DataConfig",
    "DataError",
    "DecathlonConfig",
    "FolderConfig",
    "ModelNet10Config",
    "Numbered",
    "PH2Config",
    "PairsConfig",
    "RotatedMNISTConfig",
    "Samples",
    "Splits",
    "describe",
    "load",
    "read_file",
]

_Config = RotatedMNISTConfig | ModelNet10Config | FolderConfig | PH2Config | DecathlonConfig | PairsConfig


def load(config: _Config, progress: Progress = ignore) -> Splits:
    """The samples that ``config`` describes; what has to be prepared is prepared once and kept."""
    if isinstance(config, RotatedMNISTConfig):
        return rotated_mnist.load(config, progress)
    if isinstance(config, ModelNet10Config):
        return modelnet10.load(config, progress)
    if isinstance(config, PH2Config):
        return ph2.load(config, progress)
    if isinstance(config, DecathlonConfig):
        return decathlon.load(config, progress)
    if isinstance(config, PairsConfig):
        return pairs.load(config, progress)
    return folder.load(config, progress)


def describe(config: _Config) -> str:
    """What there is to load from, in a few words; a :class:`DataError` that says what is missing and where it is."""
    if isinstance(config, RotatedMNISTConfig):
        return digits.find(config.root).describe()
    if isinstance(config, ModelNet10Config):
        return clouds.find(config.root).describe()
    if isinstance(config, PH2Config):
        return ph2.find(config).describe()
    if isinstance(config, DecathlonConfig):
        return decathlon.find(config).describe()
    if isinstance(config, PairsConfig):
        return pairs.find(config).describe()
    return folder.find(config.root).describe()
