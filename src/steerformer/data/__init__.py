"""Data sets of images and volumes: Rotated MNIST, ModelNet10, PH2, the Medical Segmentation Decathlon, and folders."""

from types import ModuleType

from steerformer.data import decathlon, image_folder, modelnet10, paired_folder, ph2, rotated_mnist
from steerformer.data.config import (
    AnyDataConfig,
    DataConfig,
    DecathlonConfig,
    FolderConfig,
    ModelNet10Config,
    PairsConfig,
    PH2Config,
    RotatedMNISTConfig,
    SegmentationDataConfig,
)
from steerformer.data.dataset import ClassificationDataset, Progress, SeededDataset, Splits, no_progress
from steerformer.data.patches import IGNORE
from steerformer.data.preprocessing import read_sample
from steerformer.data.segmentation_dataset import SegmentationDataset
from steerformer.io.errors import DataError

__all__ = [
    "IGNORE",
    "ClassificationDataset",
    "DataConfig",
    "DataError",
    "DecathlonConfig",
    "FolderConfig",
    "ModelNet10Config",
    "PH2Config",
    "PairsConfig",
    "RotatedMNISTConfig",
    "SeededDataset",
    "SegmentationDataConfig",
    "SegmentationDataset",
    "Splits",
    "describe",
    "load",
    "read_sample",
]

_DATA_SETS: dict[type[AnyDataConfig], ModuleType] = {
    RotatedMNISTConfig: rotated_mnist,
    ModelNet10Config: modelnet10,
    FolderConfig: image_folder,
    PH2Config: ph2,
    DecathlonConfig: decathlon,
    PairsConfig: paired_folder,
}
"""One module per data set, with ``find(config)`` and ``load(config, progress)``."""


def load(config: AnyDataConfig, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets; data are preprocessed once and cached."""
    splits: Splits = _DATA_SETS[type(config)].load(config, progress)
    return splits


def describe(config: AnyDataConfig) -> str:
    """The files found, in a few words; a :class:`DataError` that says what is missing and where to get it."""
    text: str = _DATA_SETS[type(config)].find(config).describe()
    return text
