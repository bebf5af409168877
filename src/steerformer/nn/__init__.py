"""Steerable layers: small modules with an ``in_type`` and an ``out_type``, for images and volumes alike."""

from steerformer.nn.activation import Gated, NormReLU
from steerformer.nn.conv import Conv
from steerformer.nn.dropout import FieldDropout
from steerformer.nn.fourier import FourierReLU
from steerformer.nn.invariants import Invariants
from steerformer.nn.linear import Linear
from steerformer.nn.norm import BatchNorm, LayerNorm
from steerformer.nn.pool import AvgPool
from steerformer.nn.product import TensorProduct
from steerformer.nn.resample import Resample

__all__ = [
    "AvgPool",
    "BatchNorm",
    "Conv",
    "FieldDropout",
    "FourierReLU",
    "Gated",
    "Invariants",
    "LayerNorm",
    "Linear",
    "NormReLU",
    "Resample",
    "TensorProduct",
]
