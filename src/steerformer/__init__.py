"""Networks on images and volumes that are equivariant to rotation and translation by construction."""

from steerformer import data, kernels, models, nn, testing
from steerformer.api import Run, open_run, train
from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3
from steerformer.models import load, save
from steerformer.version import __version__

__all__ = [
    "SO2",
    "SO3",
    "FieldType",
    "Run",
    "__version__",
    "data",
    "kernels",
    "load",
    "models",
    "nn",
    "open_run",
    "save",
    "testing",
    "train",
]
