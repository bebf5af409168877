"""Networks on images and volumes that are equivariant to rotation and translation by construction."""

from typing import TYPE_CHECKING, Any

from steerformer import data, kernels, models, nn, testing
from steerformer.api import Run, open_run, train
from steerformer.exporting import export, plain_module
from steerformer.fields import FieldType, concat, from_cartesian, separate, to_cartesian
from steerformer.groups import SO2, SO3
from steerformer.models import load, save
from steerformer.version import __version__

__all__ = [
    "SO2",
    "SO3",
    "FieldType",
    "Run",
    "__version__",
    "concat",
    "data",
    "export",
    "from_cartesian",
    "kernels",
    "load",
    "models",
    "nn",
    "open_run",
    "plain_module",
    "save",
    "separate",
    "testing",
    "to_cartesian",
    "train",
    "viz",
]

if TYPE_CHECKING:
    from steerformer import viz


def __getattr__(name: str) -> Any:
    if name == "viz":  # imported late: it imports matplotlib
        from importlib import import_module

        return import_module("steerformer.viz")
    raise AttributeError(f"module 'steerformer' has no attribute {name!r}")
