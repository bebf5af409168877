"""What a model is made of, as a value that can be written into a file."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from steerformer.config import Config
from steerformer.groups import GROUPS
from steerformer.kernels import Family

Positive = Annotated[int, Field(ge=1)]
Copies = Positive | tuple[Annotated[int, Field(ge=0)], ...]
PlainWidths = Annotated[tuple[Annotated[tuple[Positive, ...], Field(min_length=1)], ...], Field(min_length=1)]


class _BlocksConfig(Config):
    """What every model has: blocks of convolutions with a pooling between them."""

    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    in_channels: Positive = 1
    """Channels of the input, such as colors."""
    widths: tuple[tuple[Any, ...], ...]
    """Blocks of convolutions, with a pooling between two of them."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Classes to tell apart."""
    kernel_size: tuple[Positive, ...] | Positive = 5
    """Width of the kernels, odd, for all blocks or for each."""
    pool: tuple[Positive, ...] | Positive = 2
    """Width of the pooling between two blocks, for all or for each."""

    @property
    def kernel_sizes(self) -> tuple[int, ...]:
        """Width of the kernels in every block."""
        return _for_each(self.kernel_size, self._blocks)

    @property
    def pools(self) -> tuple[int, ...]:
        """Width of the pooling before every block but the first."""
        return _for_each(self.pool, self._blocks - 1)

    @property
    def _blocks(self) -> int:
        return len(self.widths)

    @model_validator(mode="after")
    def _require_fitting_blocks(self) -> "_BlocksConfig":
        for name, numbers, count in (
            ("kernel_size", self.kernel_sizes, self._blocks),
            ("pool", self.pools, self._blocks - 1),
        ):
            if len(numbers) != count:
                raise ValueError(
                    f"{name} has {len(numbers)} numbers, expected {count} for {self._blocks} blocks of widths"
                )
        if any(size % 2 == 0 for size in self.kernel_sizes):
            raise ValueError(f"kernel_size is odd, so that kernels have a center, got {self.kernel_size}")
        return self


def _for_each(value: tuple[int, ...] | int, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else value


class _GridConfig(_BlocksConfig):
    """What every classifier has: a grid of one size, and a head."""

    size: Positive
    """Voxels along each side of the input."""
    hidden: Positive = 128
    """Width of the head."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Dropout in the head."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Voxels along each side in every block; those that no window of a pooling fits into are left out."""
        return tuple(self.size // math.prod(self.pools[:i]) for i in range(self._blocks))

    @model_validator(mode="after")
    def _require_a_grid_to_the_end(self) -> "_GridConfig":
        if not self.sizes[-1]:
            raise ValueError(f"nothing is left of a grid of {self.size} after poolings of {self.pools}")
        return self


class SteerableConfig(_BlocksConfig):
    """What steerable models share: fields, kernels, norms, nonlinearities and attention."""

    degrees: Positive = 4
    """Features carry degrees 0 to degrees - 1."""
    widths: Annotated[tuple[tuple[Copies, ...], ...], Field(min_length=1)] = ((8, 16), (16, 32), (32, 32))
    """Blocks of convolutions: copies of every degree after each convolution; or a list, one number for each degree."""
    profiles: Family = "fitted"
    """Family of kernels: how rings are put on the grid, see docs/kernels.md."""
    tolerance: Annotated[float, Field(gt=0)] = 1e-2
    """Largest share of a kernel's response that may turn wrongly."""
    norm: Literal["batch", "layer"] = "batch"
    """layer: the paper's; batch learns faster."""
    norms: Literal["block", "convolution"] = "block"
    """block: the paper's blocks, a nonlinearity between convolutions and a norm at the end; convolution: after every
    convolution a norm and a nonlinearity."""
    nonlinearity: Literal["norm", "gated", "fourier"] = "norm"
    """norm: the paper's, which shortens vectors; gated: scales them by gates that a convolution makes; fourier: a ReLU
    on functions of direction, which lets degrees mix."""
    bias: float = -0.5
    """norm: start of the bias; vectors shorter than its opposite are silenced."""
    oversampling: Annotated[int, Field(ge=2)] = 4
    """fourier: how many times the largest degree the grid of directions resolves."""
    antialiased: bool = False
    """Pool with Gaussian windows."""
    blur: Annotated[float, Field(ge=0.1, le=4)] = 0.45
    """antialiased: standard deviation of the windows, in strides."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks."""
    num_heads: Positive = 4
    """Heads of attention; they divide the copies of every degree."""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout of copies after attention and after the MLP."""

    @property
    def deepest(self) -> Copies:
        """Copies after the last convolution of the last block that has any."""
        return [copies for block in self.widths for copies in block][-1]

    @model_validator(mode="after")
    def _require_convolutions(self) -> "SteerableConfig":
        if not all(self.widths[: self._least_blocks]):
            raise ValueError(f"each block of widths has at least 1 convolution, got {_listed(self.widths)}")
        return self

    @property
    def _least_blocks(self) -> int:
        """How many blocks must have convolutions."""
        return self._blocks

    @model_validator(mode="after")
    def _require_fitting_heads(self) -> "SteerableConfig":
        for copies in (copies for block in self.widths for copies in block):
            require_copies(copies, self.degrees)
        copies = (self.deepest,) if isinstance(self.deepest, int) else self.deepest
        if self.depth and any(number % self.num_heads for number in copies):
            raise ValueError(f"num_heads {self.num_heads} does not divide the last of widths, {self.deepest}")
        return self


def require_copies(copies: Copies, degrees: int) -> None:
    """Raise ``ValueError`` where a list of copies is none for these degrees."""
    if not isinstance(copies, int) and not (sum(copies) and len(copies) <= degrees):
        raise ValueError(f"copies {list(copies)} should be for at most {degrees} degrees, and not all 0")


def _listed(widths: tuple[tuple[Copies, ...], ...]) -> list[Any]:
    return [[copies if isinstance(copies, int) else list(copies) for copies in block] for block in widths]


class ClassifierConfig(SteerableConfig, _GridConfig):
    """The paper's classifier; without attention (``depth: 0``) its convolution baseline."""

    kind: Literal["classifier"] = "classifier"
    features: Copies = 64
    """Copies after the convolution over the remaining grid: of degree 0, or a list, one number for each degree."""

    @model_validator(mode="after")
    def _require_fitting_features(self) -> "ClassifierConfig":
        require_copies(self.features, self.degrees)
        return self


class UNetConfig(SteerableConfig):
    """The paper's network for segmentation; without attention (``depth: 0``) its convolution baseline."""

    kind: Literal["unet"] = "unet"
    classes: Annotated[int, Field(ge=2)] = 2
    """Classes to tell apart; class 0 is the background."""
    widths: Annotated[tuple[tuple[Copies, ...], ...], Field(min_length=1)] = ((8,), (16,), (32,))
    """The way down, level after level: copies of every degree after each convolution; or a list, one number for each
    degree. The way up mirrors it. The last level may be empty, []: then only the transformer works there."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks on the coarsest grid; 0: the paper's MLP instead."""
    hidden: Positive = 2
    """Copies inside the MLPs, as a multiple."""
    spacing: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Size of a voxel along each axis; null for voxels that are cubes."""
    head: Literal["norm", "absolute", "scalar"] = "norm"
    """norm: logits are lengths, each of one field of all degrees, as in the paper; absolute: of one complex scalar, as
    in the paper in space; scalar: they are real scalars of either sign, which learns faster."""
    head_size: Positive | None = None
    """Width of the kernels of the last convolution, which makes the logits, odd; null for that of the first level."""
    checkpoint: bool = False
    """Forget what is inside of blocks and compute it again for gradients: less memory, a third more time."""

    @property
    def _least_blocks(self) -> int:
        return max(self._blocks - 1, 1)

    @model_validator(mode="after")
    def _require_a_center(self) -> "UNetConfig":
        if self.head_size is not None and self.head_size % 2 == 0:
            raise ValueError(f"head_size is odd, so that kernels have a center, got {self.head_size}")
        return self

    @model_validator(mode="after")
    def _require_fitting_spacing(self) -> "UNetConfig":
        dim = GROUPS[self.group].dim
        if self.spacing is not None and len(self.spacing) != dim:
            raise ValueError(f"spacing is one number for each of {dim} axes, got {list(self.spacing)}")
        return self


class CNNConfig(_GridConfig):
    """A plain convolution network, which is not equivariant: the control."""

    kind: Literal["cnn"] = "cnn"
    widths: PlainWidths = ((16, 32), (32, 64), (64, 64))
    """Blocks of convolutions: channels after each."""
    kernel_size: tuple[Positive, ...] | Positive = 3
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


class MonaiUNetConfig(Config):
    """MONAI's UNet, which is not equivariant: the control for segmentation."""

    kind: Literal["monai"] = "monai"
    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    in_channels: Positive = 1
    """Channels of the input, such as colors."""
    classes: Annotated[int, Field(ge=2)] = 2
    """Classes to tell apart; class 0 is the background."""
    channels: Annotated[tuple[Positive, ...], Field(min_length=2)] = (16, 32, 64)
    """Channels of each level."""
    pool: Positive = 2
    """Stride between two levels."""
    kernel_size: Positive = 3
    """Width of the kernels, odd."""
    residual_units: Annotated[int, Field(ge=0)] = 2
    """Convolutions of the residual unit of each level."""
    norm: Literal["batch", "instance"] = "batch"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _require_a_center(self) -> "MonaiUNetConfig":
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is odd, so that kernels have a center, got {self.kernel_size}")
        return self


AnyModelConfig = ClassifierConfig | UNetConfig | CNNConfig | MonaiUNetConfig
ModelConfig = Annotated[AnyModelConfig, Field(discriminator="kind")]
