"""The paper's segmentation network: a U-Net of steerable convolutions with a transformer on the coarsest grid."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS
from steerformer.models.activation_checkpointing import checkpointed
from steerformer.models.blocks import block, conv, encoder, field_type, mlp_nonlinearity, norm, pool
from steerformer.models.config import UNetConfig
from steerformer.models.stem import FullResolutionHead
from steerformer.models.unet_levels import Down, Up
from steerformer.nn import MLP, Conv, Encoder
from steerformer.nn.ops import length, require_space

_HEAD_KERNEL_SIZE = 3  # of the head's convolutions of features and image; only the last one is configured


class UNet(nn.Module):
    """Equivariant U-Net for segmentation: logits of every voxel rotate with the input (paper, section 5).

    Each level of the contracting path pools and applies a block of convolutions. A transformer works on the coarsest
    grid (``depth: 0``: an MLP, the paper's baseline). The expanding path mirrors the levels: each interpolates the
    output of the coarser one, adds the skip connection and applies a block. Grids may have any size, odd or even: see
    :mod:`steerformer.models.unet_levels`.

    With ``stem_stride: 2`` the first convolution has stride 2 (:class:`~steerformer.models.stem.Stem`), so that all
    levels work on a coarser grid than that of the image, and a light head returns to the grid of the image
    (:class:`~steerformer.models.stem.FullResolutionHead`).

    Args:
        config: widths and options.
    """

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        group = GROUPS[config.group]
        self.in_type = FieldType.image(group, config.in_channels)
        self.out_type = FieldType.image(group, config.classes)
        self.stride = config.stem_stride * math.prod(config.pools)
        """Input voxels per voxel of the coarsest grid, along each axis."""
        types, before = [], self.in_type
        for widths in config.widths:
            after = (field_type(group, copies, config.degrees, real=config.real) for copies in widths)
            types.append([before, *after])
            before = types[-1][-1]
        self.down = nn.ModuleList(_down(config, types))
        self.middle = _middle(config, before)
        self.up = nn.ModuleList(_up(config, types))
        self.full_resolution = _full_resolution(config, types[0]) if config.stem_stride > 1 else None
        self.head = Logits(_class_type(config, self.in_type), self.out_type)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch classes *space"]:
        """Logits of every voxel."""
        require_space(self.in_type, x, "UNet")
        image, skips = x, list[Tensor | None]()
        for level in self.down:
            x = self._run(level, x)
            skips.append(x)
        skips[-1] = None  # the coarsest level has no skip connection
        for part in self.middle.blocks if isinstance(self.middle, Encoder) else [self.middle]:
            x = self._run(part, x)
        for level in self.up:
            x = self._run(level, x, skips.pop())
        if self.full_resolution is not None:
            x = self._run(self.full_resolution, x, image)
        logits: Tensor = self.head(x)
        return logits

    def _run(self, part: nn.Module, *inputs: Tensor | None) -> Tensor:
        return checkpointed(part, *inputs) if self.config.activation_checkpointing else part(*inputs)


class Logits(nn.Module):
    """Logit of each class: the norm of its field, or its real scalar, plus a learned bias."""

    def __init__(self, in_type: FieldType, out_type: FieldType) -> None:
        super().__init__()
        self.in_type, self.out_type = in_type, out_type
        self.bias = nn.Parameter(torch.zeros(out_type.channels))

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch classes *space"]:
        """Logits of every voxel."""
        if not self.in_type.real:
            x = length(x.unflatten(1, (-1, self.out_type.channels)))  # copies (here classes) vary fastest
        return x + self.bias.view(-1, *(1 for _ in x.shape[2:]))

    def extra_repr(self) -> str:
        return f"{self.in_type} -> {self.out_type}"


def _down(config: UNetConfig, types: list[list[FieldType]]) -> Iterator[Down]:
    for i, level in enumerate(types):
        pooling = pool(config, level[0], config.pools[i - 1]) if i else None
        stride = 1 if i else config.stem_stride
        yield Down(pooling, block(config, level, config.kernel_sizes[i], spacing=config.spacing, stem_stride=stride))


def _middle(config: UNetConfig, of: FieldType) -> Encoder | MLP:
    hidden = FieldType(of.group, [config.hidden * copies for copies in of.multiplicities], real=of.real)
    if not config.depth:
        return MLP(of, hidden=hidden, nonlinearity=mlp_nonlinearity(config))
    return encoder(config, of, hidden=hidden, spacing=config.spacing)


def _up(config: UNetConfig, types: list[list[FieldType]]) -> Iterator[Up]:
    """From the coarsest level to the finest, whose last convolution gives the fields of the classes.

    With a stem, :class:`FullResolutionHead` gives these.
    """
    last = len(types) - 1
    for i, level in reversed(list(enumerate(types))):
        mirrored = [*reversed(level[1:]), level[0]] if i else [*reversed(level[1:])]
        parts = [*block(config, mirrored, config.kernel_sizes[i], spacing=config.spacing, conv_follows=i == 0)]
        if i == 0 and config.stem_stride == 1:
            parts.append(_last_conv(config, mirrored[-1], level[0]))
        yield Up(mirrored[0], config.pools[i] if i < last else None, parts)


def _full_resolution(config: UNetConfig, level: list[FieldType]) -> FullResolutionHead:
    image, features = level[:2]
    scalars, both = (
        FieldType.image(image.group, n) for n in (config.head_channels, config.head_channels + config.classes)
    )
    return FullResolutionHead(
        conv(config, features, both, _HEAD_KERNEL_SIZE, spacing=config.spacing),
        conv(config, image, scalars, _HEAD_KERNEL_SIZE, spacing=config.spacing),
        norm(config, scalars),
        _last_conv(config, scalars, image),
    )


def _last_conv(config: UNetConfig, before: FieldType, image: FieldType) -> Conv:
    size = config.head_kernel_size or config.kernel_sizes[0]
    return conv(config, before, _class_type(config, image), size, spacing=config.spacing)


def _class_type(config: UNetConfig, image: FieldType) -> FieldType:
    if config.head == "scalar":
        return FieldType.image(image.group, config.classes)
    return field_type(image.group, config.classes, config.degrees if config.head == "norm" else 1)
