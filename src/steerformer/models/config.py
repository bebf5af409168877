"""What a model is made of, as a value that can be written into a file."""

from typing import Annotated, Literal

from pydantic import Field

from steerformer.config import Config
from steerformer.kernels import Family

Positive = Annotated[int, Field(ge=1)]
Copies = Positive | tuple[Annotated[int, Field(ge=0)], ...]


class ClassifierConfig(Config):
    """The paper's classifier; without attention (``depth: 0``) its convolution baseline."""

    kind: Literal["classifier"] = "classifier"
    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    size: Positive
    """Voxels along each side of the input."""
    in_channels: Positive = 1
    """Channels of the input, such as colours."""
    classes: Positive = 10
    degrees: Positive = 4
    """Features carry degrees 0 to degrees - 1."""
    widths: tuple[tuple[Copies, ...], ...] = ((8, 16), (16, 32), (32, 32))
    """Blocks of convolutions: copies of every degree after each convolution; or a list, one number for each degree."""
    kernel_size: tuple[Positive, ...] | Positive = 5
    """Width of the kernels, for all blocks or for each."""
    profiles: Family = "fitted"
    tolerance: Annotated[float, Field(gt=0)] = 1e-2
    norm: Literal["batch", "layer"] = "batch"
    bias: float = -0.5
    """Start of the nonlinearity's bias: vectors shorter than its opposite are silenced."""
    antialiased: bool = False
    """Pool with Gaussian windows."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks."""
    num_heads: Positive = 4
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    features: Copies = 64
    """Copies after the convolution over the remaining grid: of degree 0, or a list, one number for each degree."""
    hidden: Positive = 128
    """Width of the head."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Dropout in the head."""


class CNNConfig(Config):
    """A plain convolution network, which is not equivariant: the control."""

    kind: Literal["cnn"] = "cnn"
    group: Literal["SO2", "SO3"]
    size: Positive
    in_channels: Positive = 1
    classes: Positive = 10
    widths: tuple[tuple[Positive, ...], ...] = ((16, 32), (32, 64), (64, 64))
    """Blocks of convolutions: channels after each."""
    kernel_size: tuple[Positive, ...] | Positive = 3
    hidden: Positive = 128
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


ModelConfig = Annotated[ClassifierConfig | CNNConfig, Field(discriminator="kind")]
