"""Configuration of MONAI's networks."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from steerformer.config import Config
from steerformer.groups import GROUPS

Positive = Annotated[int, Field(ge=1)]


class MonaiUNetConfig(Config):
    """MONAI's UNet or DynUNet, which are not equivariant: the controls for segmentation."""

    kind: Literal["monai"] = "monai"
    """Selects this model."""
    architecture: Literal["unet", "dynunet"] = "unet"
    """unet: MONAI's UNet with residual units; dynunet: MONAI's DynUNet, the network of nnU-Net, with two convolutions
    and leaky ReLUs per level."""
    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    in_channels: Positive = 1
    """Channels of the input, such as colors or modalities."""
    classes: Annotated[int, Field(ge=2)] = 2
    """Number of classes; class 0 is the background."""
    channels: Annotated[tuple[Positive, ...], Field(min_length=2)] = (16, 32, 64)
    """Channels of each level."""
    pool: Positive = 2
    """Stride between two levels."""
    kernel_size: Positive = 3
    """Kernel size, odd."""
    residual_units: Annotated[int, Field(ge=0)] = 2
    """unet: convolutions of the residual unit of each level."""
    deep_supervision: bool = False
    """dynunet: in training, coarser levels predict as well, and the loss counts level n with weight 2^-n."""
    norm: Literal["batch", "instance"] = "batch"
    """Batch or instance normalization."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout after each convolution."""
    margin: Annotated[int, Field(ge=0)] = 0
    """Zeros that surround an input in evaluation and prediction. A network trained on patches that reach over the edges
    of scans has seen background around them, and finds false structures at the edges of a scan without a margin."""
    window: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=3)] | None = None
    """Sides of the windows in which it predicts, in voxels, half a window apart; smaller inputs are padded by zeros. As
    in nnU-Net, the patch size of the training: instance norms depend on how much of their input is empty."""

    @model_validator(mode="after")
    def _require_odd_kernel(self) -> "MonaiUNetConfig":
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        return self

    @model_validator(mode="after")
    def _require_sides_of_windows(self) -> "MonaiUNetConfig":
        dim = GROUPS[self.group].dim
        if self.window and len(self.window) != dim:
            raise ValueError(f"window has one side for each of {dim} axes, got {list(self.window)}")
        if self.window and self.margin:
            raise ValueError("give window or margin, not both: windows are padded where an input is smaller")
        return self

    @model_validator(mode="after")
    def _require_levels_for_deep_supervision(self) -> "MonaiUNetConfig":
        if self.deep_supervision and self.architecture != "dynunet":
            raise ValueError("deep_supervision needs architecture: dynunet")
        if self.architecture == "dynunet" and len(self.channels) < 3:
            raise ValueError(f"dynunet needs channels of at least 3 levels, got {list(self.channels)}")
        return self
