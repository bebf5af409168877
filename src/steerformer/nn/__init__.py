"""Equivariant layers for images and volumes: modules with an ``in_type`` and an ``out_type``."""

from steerformer.nn.activation import Gated, NormReLU
from steerformer.nn.attention import Attention
from steerformer.nn.conv import Conv
from steerformer.nn.conv_transpose import ConvTranspose
from steerformer.nn.decoder import Decoder, DecoderBlock
from steerformer.nn.dropout import FieldDropout
from steerformer.nn.fourier import FourierReLU
from steerformer.nn.invariants import Invariants
from steerformer.nn.linear import Linear
from steerformer.nn.max_pool import NormMaxPool
from steerformer.nn.norm import BatchNorm, LayerNorm
from steerformer.nn.pool import AvgPool
from steerformer.nn.position import PositionalEncoding
from steerformer.nn.product import TensorProduct
from steerformer.nn.resample import Resample
from steerformer.nn.transformer import MLP, Encoder, TransformerBlock
from steerformer.nn.window import RadialWindow

__all__ = [
    "MLP",
    "Attention",
    "AvgPool",
    "BatchNorm",
    "Conv",
    "ConvTranspose",
    "Decoder",
    "DecoderBlock",
    "Encoder",
    "FieldDropout",
    "FourierReLU",
    "Gated",
    "Invariants",
    "LayerNorm",
    "Linear",
    "NormMaxPool",
    "NormReLU",
    "PositionalEncoding",
    "RadialWindow",
    "Resample",
    "TensorProduct",
    "TransformerBlock",
]
