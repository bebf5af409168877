"""Blocks of steerable convolutions, norms and nonlinearities, shared by classifiers and U-Nets."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

from torch import nn

from steerformer.fields import FieldType
from steerformer.groups import Group
from steerformer.models.config import Multiplicities, SteerableConfig
from steerformer.models.stem import Stem
from steerformer.nn import AvgPool, BatchNorm, Conv, Encoder, FourierReLU, Gated, LayerNorm, NormReLU
from steerformer.nn.transformer import shrink

Spacing = tuple[float, ...] | None
_WIDTH = 3  # of strided kernels, in voxels of the coarse grid


def field_type(group: Group, copies: Multiplicities, degrees: int, *, real: bool = False) -> FieldType:
    """The same multiplicity for every degree, or a list with one for each."""
    return FieldType(group, (copies,) * degrees if isinstance(copies, int) else copies, real=real)


def block(
    config: SteerableConfig,
    types: Sequence[FieldType],
    kernel_size: int,
    *,
    spacing: Spacing = None,
    conv_follows: bool = False,
    stem_stride: int = 1,
) -> Iterator[nn.Module]:
    """Convolutions from each type to the next, with norms and nonlinearities.

    The paper's blocks have nonlinearities between convolutions and a norm at the end. Where ``conv_follows``, the block
    ends with a nonlinearity, too. With a ``stem_stride`` above 1, the first convolution is a strided stem.
    """
    for i, (before, after) in enumerate(pairwise(types)):
        is_last = i == len(types) - 2 and not conv_follows
        if i == 0 and stem_stride > 1:
            yield stem(config, before, after, stem_stride, spacing=spacing)
        else:
            yield conv(config, before, after, kernel_size, spacing=spacing)
        if is_last or config.norm_after == "convolution":
            yield norm(config, after)
        if not is_last or config.norm_after == "convolution":
            yield _nonlinearity(config, after, spacing)


def conv(
    config: SteerableConfig,
    before: FieldType,
    after: FieldType,
    kernel_size: int,
    *,
    stride: int = 1,
    padding: int | Literal["same"] = "same",
    spacing: Spacing = None,
) -> Conv:
    """A convolution with the kernels of the configuration."""
    return Conv(
        before,
        after,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        kernel_family=config.kernel_family,
        max_impurity=config.max_impurity,
        spacing=spacing,
    )


def stem(config: SteerableConfig, image: FieldType, after: FieldType, stride: int, *, spacing: Spacing = None) -> Stem:
    """A strided convolution from an image, antialiased as the poolings of the configuration are."""
    strided = conv(config, image, after, _WIDTH * stride, stride=stride, spacing=spacing)
    return Stem(strided, config.blur * stride if config.antialiased else None)


def norm(config: SteerableConfig, of: FieldType) -> BatchNorm | LayerNorm:
    """The norm of the configuration."""
    return (BatchNorm if config.norm == "batch" else LayerNorm)(of)


def pool(config: SteerableConfig, of: FieldType, kernel_size: int) -> AvgPool:
    """The pooling of the configuration."""
    return AvgPool(of, kernel_size=kernel_size, antialiased=config.antialiased, blur=config.blur)


def encoder(
    config: SteerableConfig,
    of: FieldType,
    *,
    hidden: FieldType | None = None,
    spacing: Spacing = None,
    key_window: float | None = None,
) -> Encoder:
    """The transformer of the configuration."""
    voxel = math.prod(spacing) ** (1 / len(spacing)) if spacing else 1.0
    return Encoder(
        of,
        num_heads=config.num_heads,
        depth=config.depth,
        dropout=config.attention_dropout,
        hidden=hidden,
        spacing=spacing,
        radial=config.radial,
        radius=None if config.radius is None else config.radius * voxel,
        falloff=config.falloff * voxel,
        key_window=key_window,
        qk_norm=config.qk_norm,
        norm_floor=config.norm_floor,
        nonlinearity=mlp_nonlinearity(config),
    )


def mlp_nonlinearity(config: SteerableConfig) -> Callable[[FieldType], nn.Module]:
    """The nonlinearity of MLPs, made of their hidden field type."""
    if config.mlp_nonlinearity == "fourier":
        return partial(FourierReLU, oversampling=config.oversampling)
    return shrink


def _nonlinearity(config: SteerableConfig, of: FieldType, spacing: Spacing) -> nn.Module:
    if config.nonlinearity == "gated":
        return Gated(of, kernel_family=config.kernel_family, max_impurity=config.max_impurity, spacing=spacing)
    if config.nonlinearity == "fourier":
        return FourierReLU(of, oversampling=config.oversampling)
    return NormReLU(of, bias=config.bias)
