"""Model configurations."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from steerformer.config import Config
from steerformer.groups import GROUPS
from steerformer.kernels import Family
from steerformer.models.monai_config import MonaiUNetConfig
from steerformer.nn.position import RadialName

Positive = Annotated[int, Field(ge=1)]
Multiplicities = Positive | tuple[Annotated[int, Field(ge=0)], ...]
PlainWidths = Annotated[tuple[Annotated[tuple[Positive, ...], Field(min_length=1)], ...], Field(min_length=1)]


class _BlocksConfig(Config):
    """Keys of models with blocks of convolutions and a pooling between two of them."""

    group: Literal["SO2", "SO3"]
    """SO2 for images, SO3 for volumes."""
    in_channels: Positive = 1
    """Channels of the input, such as colors or modalities."""
    widths: tuple[tuple[Any, ...], ...]
    """Blocks of convolutions, with a pooling between two of them."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Number of classes."""
    kernel_size: tuple[Positive, ...] | Positive = 5
    """Kernel size, odd, for all blocks or one for each."""
    pool: tuple[Positive, ...] | Positive = 2
    """Pooling factor between two blocks, for all or one for each."""

    @property
    def kernel_sizes(self) -> tuple[int, ...]:
        """Kernel size of every block."""
        return _for_each(self.kernel_size, self._blocks)

    @property
    def pools(self) -> tuple[int, ...]:
        """Pooling factor before every block but the first."""
        return _for_each(self.pool, self._blocks - 1)

    @property
    def _blocks(self) -> int:
        return len(self.widths)

    @model_validator(mode="after")
    def _require_matching_lengths(self) -> "_BlocksConfig":
        for name, numbers, count in (
            ("kernel_size", self.kernel_sizes, self._blocks),
            ("pool", self.pools, self._blocks - 1),
        ):
            if len(numbers) != count:
                raise ValueError(
                    f"{name} has {len(numbers)} numbers, expected {count} for {self._blocks} blocks of widths"
                )
        if any(size % 2 == 0 for size in self.kernel_sizes):
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        return self


def _for_each(value: tuple[int, ...] | int, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else value


class _GridConfig(_BlocksConfig):
    """Keys of classifiers: a fixed input size, and a head."""

    size: Positive
    """Voxels along each side of the input."""
    hidden: Positive = 128
    """Width of the hidden layer of the head."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Dropout in the head."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Voxels along each side in every block; poolings drop an incomplete window."""
        return tuple(self.size // math.prod(self.pools[:i]) for i in range(self._blocks))

    @model_validator(mode="after")
    def _require_remaining_grid(self) -> "_GridConfig":
        if not self.sizes[-1]:
            raise ValueError(f"size {self.size} is too small for poolings by {self.pools}: no voxel is left")
        return self


class SteerableConfig(_BlocksConfig):
    """Keys of steerable models: fields, kernels, norms, nonlinearities and attention."""

    degrees: Positive = 4
    """Features have degrees 0 to degrees - 1."""
    widths: Annotated[tuple[tuple[Multiplicities, ...], ...], Field(min_length=1)] = ((8, 16), (16, 32), (32, 32))
    """Blocks of convolutions: multiplicity of every degree after each convolution, or a list of one for each degree."""
    real: bool = False
    """Real features and weights in volumes, instead of the paper's complex ones: half the channels and half the
    parameters at equal widths. Attention then takes signed scores. docs/real_fields.md compares their time."""
    kernel_family: Family = "fitted"
    """Kernel family: how radial profiles are discretized on the grid, see docs/kernels.md."""
    max_impurity: Annotated[float, Field(gt=0)] = 1e-2
    """Largest impurity of a kernel: the share of its response that is not equivariant."""
    norm: Literal["batch", "layer"] = "batch"
    """layer: as in the paper; batch: trains faster."""
    norm_after: Literal["block", "convolution"] = "block"
    """block: as in the paper, nonlinearities between convolutions and a norm at the end of each block; convolution: a
    norm and a nonlinearity after every convolution."""
    nonlinearity: Literal["norm", "gated", "fourier"] = "norm"
    """norm: NormReLU, as in the paper; gated: multiplies features by learned gates; fourier: a ReLU on functions of
    direction, which mixes degrees."""
    bias: float = -0.5
    """norm: initial bias b; features of norm below -b become 0."""
    mlp_nonlinearity: Literal["norm", "fourier"] = "norm"
    """Nonlinearity of the transformer's MLPs. norm: NormReLU, as in the paper; fourier: a ReLU on functions of
    direction. docs/any_angle.md compares them."""
    oversampling: Annotated[int, Field(ge=2)] = 4
    """fourier: largest degree that the grid of directions resolves, as a multiple of the largest degree of features."""
    antialiased: bool = False
    """Antialiased pooling, with Gaussian windows."""
    blur: Annotated[float, Field(ge=0.1, le=4)] = 0.45
    """antialiased: standard deviation of the Gaussian, in strides."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks."""
    num_heads: Positive = 4
    """Attention heads; must divide the multiplicity of every degree."""
    radial: RadialName = "soft"
    """Radial profile of positional encodings. paper: the paper's; soft: damped near 0; smooth: smooth at 0 for all
    degrees, meant for classifiers with a window."""
    qk_norm: Annotated[float, Field(gt=0)] | None = None
    """Largest attention score of content, by normalizing queries and keys; null for no bound, as in the paper. A bound
    of 2 or 3 lessens the equivariance error at arbitrary angles."""
    radius: Annotated[float, Field(gt=0)] | None = None
    """Radius of attention: voxels attend to those within this distance, in voxels of the grid of the transformer (with
    spacing, in units of its geometric mean); null for all. Work grows with the number of voxels instead of its square.
    """
    falloff: Annotated[float, Field(ge=0)] = 0.0
    """radius: distance over which the weights of voxels fall smoothly to 0 at the radius; rotations by any angle then
    change less which voxels are attended to."""
    norm_floor: Annotated[float, Field(ge=0)] = 0.0
    """Layer norms of the transformer keep voxels small whose channels are below this on average, instead of amplifying
    the background; 0 as in the paper. 0.5 lessens the equivariance error at arbitrary angles."""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout of whole copies after attention and after the MLP."""

    @property
    def deepest(self) -> Multiplicities:
        """Multiplicities after the last convolution."""
        return [copies for block in self.widths for copies in block][-1]

    @model_validator(mode="after")
    def _require_real_irreps(self) -> "SteerableConfig":
        if self.real and not GROUPS[self.group].has_real_irreps:
            raise ValueError(
                f"real features are for volumes, got group {self.group}: its complex numbers of degree k > 0 are the "
                f"real irreps already; leave real out"
            )
        return self

    @model_validator(mode="after")
    def _require_convolutions(self) -> "SteerableConfig":
        if not all(self.widths[: self._required_blocks]):
            raise ValueError(f"each block of widths needs at least 1 convolution, got {_as_lists(self.widths)}")
        return self

    @property
    def _required_blocks(self) -> int:
        """Number of blocks that must have convolutions."""
        return self._blocks

    @model_validator(mode="after")
    def _require_falloff_within_radius(self) -> "SteerableConfig":
        if self.falloff > (self.radius or 0):
            raise ValueError(f"falloff {self.falloff:g} is larger than the radius {self.radius}")
        return self

    @model_validator(mode="after")
    def _require_divisible_heads(self) -> "SteerableConfig":
        for copies in (copies for block in self.widths for copies in block):
            require_multiplicities(copies, self.degrees)
        copies = (self.deepest,) if isinstance(self.deepest, int) else self.deepest
        if self.depth and any(number % self.num_heads for number in copies):
            raise ValueError(f"num_heads {self.num_heads} does not divide the last entry of widths, {self.deepest}")
        return self


def require_multiplicities(copies: Multiplicities, degrees: int) -> None:
    """Raise ``ValueError`` if a list of multiplicities is too long for these degrees, or all 0."""
    if not isinstance(copies, int) and not (sum(copies) and len(copies) <= degrees):
        raise ValueError(f"multiplicities {list(copies)} must be for at most {degrees} degrees and not all 0")


def _as_lists(widths: tuple[tuple[Multiplicities, ...], ...]) -> list[Any]:
    return [[copies if isinstance(copies, int) else list(copies) for copies in block] for block in widths]


class ClassifierConfig(SteerableConfig, _GridConfig):
    """The paper's classifier; with ``depth: 0`` its baseline without attention."""

    kind: Literal["classifier"] = "classifier"
    """Selects this model."""
    features: Multiplicities = 64
    """Multiplicity of degree 0 after the convolution over the remaining grid, or a list with one for each degree."""
    final_pool: Positive = 1
    """Pooling factor after the last block, before the transformer; 1 for none. Convolutions of the last block then work
    on a finer grid than attention: what they alias is less, and attention stays cheap."""
    window: Annotated[float, Field(ge=0)] = 0.0
    """Distance in voxels of the last grid over which a radial window falls to 0 at its edge: on the keys of attention
    and before the convolution over the remaining grid. Rotations by any angle change the logits less; 0 for none."""

    @property
    def final_size(self) -> int:
        """Voxels along each side of the last grid, on which the transformer works."""
        return self.sizes[-1] // self.final_pool

    @model_validator(mode="after")
    def _require_final_grid(self) -> "ClassifierConfig":
        if not self.final_size:
            raise ValueError(
                f"final_pool {self.final_pool} is larger than the grid of {self.sizes[-1]} voxels after the last block"
            )
        return self

    @model_validator(mode="after")
    def _require_valid_features(self) -> "ClassifierConfig":
        require_multiplicities(self.features, self.degrees)
        return self


class UNetConfig(SteerableConfig):
    """The paper's segmentation network; with ``depth: 0`` its baseline without attention."""

    kind: Literal["unet"] = "unet"
    """Selects this model."""
    classes: Annotated[int, Field(ge=2)] = 2
    """Number of classes; class 0 is the background."""
    widths: Annotated[tuple[tuple[Multiplicities, ...], ...], Field(min_length=1)] = ((8,), (16,), (32,))
    """Levels of the contracting path: multiplicity of every degree after each convolution, or a list with one for each
    degree. The expanding path mirrors it. The last level may be empty, []: then it has the transformer only."""
    depth: Annotated[int, Field(ge=0)] = 1
    """Transformer blocks on the coarsest grid; 0: an MLP instead, the paper's baseline."""
    hidden: Positive = 2
    """Expansion factor of the MLPs."""
    spacing: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """Voxel spacing along each axis; null for isotropic voxels."""
    stem_stride: Literal[1, 2] = 1
    """Stride of the first convolution. 2: all levels work on a grid half as fine as the image, 1/4 of the pixels or 1/8
    of the voxels, and a light head returns to the grid of the image. The first convolution then has a kernel size of 6,
    and with antialiased the image is blurred before."""
    head_channels: Positive = 8
    """stem_stride 2: real scalars on the grid of the image, from features and image, which correct the logits."""
    head: Literal["norm", "absolute", "scalar"] = "norm"
    """norm: logits are norms of fields of all degrees, as in the paper; absolute: absolute values of complex scalars,
    as in the paper in 3D; scalar: real scalars of either sign, which train faster."""
    head_kernel_size: Positive | None = None
    """Kernel size of the last convolution, which gives the logits, odd; null for that of the first level."""
    activation_checkpointing: bool = False
    """Keep only the inputs of blocks and recompute their activations in the backward pass: less memory, a third more
    time."""

    @property
    def _required_blocks(self) -> int:
        return max(self._blocks - 1, 1)

    @model_validator(mode="after")
    def _require_odd_kernel(self) -> "UNetConfig":
        if self.head_kernel_size is not None and self.head_kernel_size % 2 == 0:
            raise ValueError(f"head_kernel_size must be odd, got {self.head_kernel_size}")
        return self

    @model_validator(mode="after")
    def _require_scalar_head_with_stem(self) -> "UNetConfig":
        if self.stem_stride > 1 and self.head != "scalar":
            raise ValueError(f"stem_stride {self.stem_stride} needs head: scalar, got {self.head}")
        return self

    @model_validator(mode="after")
    def _require_spacing_per_axis(self) -> "UNetConfig":
        dim = GROUPS[self.group].dim
        if self.spacing is not None and len(self.spacing) != dim:
            raise ValueError(f"spacing needs one number for each of {dim} axes, got {list(self.spacing)}")
        return self


class CNNConfig(_GridConfig):
    """A plain CNN, which is not equivariant: the control."""

    kind: Literal["cnn"] = "cnn"
    """Selects this model."""
    widths: PlainWidths = ((16, 32), (32, 64), (64, 64))
    """Blocks of convolutions: channels after each."""
    kernel_size: tuple[Positive, ...] | Positive = 3
    """Kernel size, odd, for all blocks or one for each."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Dropout in the head."""


AnyModelConfig = ClassifierConfig | UNetConfig | CNNConfig | MonaiUNetConfig
ModelConfig = Annotated[AnyModelConfig, Field(discriminator="kind")]
