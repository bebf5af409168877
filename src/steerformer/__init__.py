"""Networks on images and volumes that are equivariant to rotation and translation by construction."""

from steerformer import kernels, nn, testing
from steerformer.fields import FieldType
from steerformer.groups import SO2, SO3

__version__ = "0.1.0"
__all__ = ["SO2", "SO3", "FieldType", "kernels", "nn", "testing"]
