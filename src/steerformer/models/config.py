"""What a model is made of, as a value that can be written into a file."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from steerformer.config import Config
from steerformer.kernels import Family

Positive = Annotated[int, Field(ge=1)]
Copies = Positive | tuple[Annotated[int, Field(ge=0)], ...]
Block = Annotated[tuple[Copies, ...], Field(min_length=1)]


class _GridConfig(Config):
    """What every classifier has: blocks with a pooling between them, on a grid of one size."""

    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    size: Positive
    """Voxels along each side of the input."""
    in_channels: Positive = 1
    """Channels of the input, such as colours."""
    widths: tuple[tuple[Any, ...], ...]
    """Blocks of convolutions, with a pooling between two of them."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Classes to tell apart."""
    kernel_size: tuple[Positive, ...] | Positive = 5
    """Width of the kernels, odd, for all blocks or for each."""
    pool: tuple[Positive, ...] | Positive = 2
    """Width of the pooling between two blocks, for all or for each."""
    hidden: Positive = 128
    """Width of the head."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Dropout in the head."""

    @property
    def kernel_sizes(self) -> tuple[int, ...]:
        """Width of the kernels in every block."""
        return _for_each(self.kernel_size, self._blocks)

    @property
    def pools(self) -> tuple[int, ...]:
        """Width of the pooling before every block but the first."""
        return _for_each(self.pool, self._blocks - 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Voxels along each side in every block; those that no window of a pooling fits into are left out."""
        return tuple(self.size // math.prod(self.pools[:i]) for i in range(self._blocks))

    @property
    def _blocks(self) -> int:
        return len(self.widths)

    @model_validator(mode="after")
    def _require_fitting_blocks(self) -> "_GridConfig":
        for name, numbers, count in (
            ("kernel_size", self.kernel_sizes, self._blocks),
            ("pool", self.pools, self._blocks - 1),
        ):
            if len(numbers) != count:
                raise ValueError(
                    f"{name} has {len(numbers)} numbers, expected {count} for {self._blocks} blocks of widths"
                )
        if any(size % 2 == 0 for size in self.kernel_sizes):
            raise ValueError(f"kernel_size is odd, so that kernels have a centre, got {self.kernel_size}")
        if not self.sizes[-1]:
            raise ValueError(f"nothing is left of a grid of {self.size} after poolings of {self.pools}")
        return self


def _for_each(value: tuple[int, ...] | int, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else value


class ClassifierConfig(_GridConfig):
    """The paper's classifier; without attention (``depth: 0``) its convolution baseline."""

    kind: Literal["classifier"] = "classifier"
    degrees: Positive = 4
    """Features carry degrees 0 to degrees - 1."""
    widths: Annotated[tuple[Block, ...], Field(min_length=1)] = ((8, 16), (16, 32), (32, 32))
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
    blur: Annotated[float, Field(gt=0, le=4)] = 0.45
    """antialiased: standard deviation of the windows, in strides."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks."""
    num_heads: Positive = 4
    """Heads of attention; they divide the copies of every degree."""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout of copies after attention and after the MLP."""
    features: Copies = 64
    """Copies after the convolution over the remaining grid: of degree 0, or a list, one number for each degree."""

    @model_validator(mode="after")
    def _require_fitting_heads(self) -> "ClassifierConfig":
        for copies in (self.features, *(copies for block in self.widths for copies in block)):
            if not isinstance(copies, int) and not (sum(copies) and len(copies) <= self.degrees):
                raise ValueError(f"copies {list(copies)} should be for at most {self.degrees} degrees, and not all 0")
        last = self.widths[-1][-1]
        copies = (last,) if isinstance(last, int) else last
        if self.depth and any(number % self.num_heads for number in copies):
            raise ValueError(f"num_heads {self.num_heads} does not divide the last of widths, {last}")
        return self


class CNNConfig(_GridConfig):
    """A plain convolution network, which is not equivariant: the control."""

    kind: Literal["cnn"] = "cnn"
    widths: Annotated[tuple[Annotated[tuple[Positive, ...], Field(min_length=1)], ...], Field(min_length=1)] = (
        (16, 32),
        (32, 64),
        (64, 64),
    )
    """Blocks of convolutions: channels after each."""
    kernel_size: tuple[Positive, ...] | Positive = 3
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


ModelConfig = Annotated[ClassifierConfig | CNNConfig, Field(discriminator="kind")]
