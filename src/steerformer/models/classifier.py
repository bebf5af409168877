"""The paper's classifier: convolutions, a transformer, lengths, and a head that sees only lengths."""

from collections.abc import Iterator
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS, Group
from steerformer.models.config import ClassifierConfig, Copies
from steerformer.models.inputs import require_size
from steerformer.nn import AvgPool, BatchNorm, Conv, Encoder, FourierReLU, Gated, Invariants, LayerNorm, NormReLU


class Classifier(nn.Module):
    """Blocks of convolutions, attention over what they found, and a head on lengths (paper, section 5).

    Blocks are [Conv, NormReLU, Conv, norm], with a pooling between two of them; then come an encoder (``depth: 0``
    leaves it out: the paper's convolution baseline), a convolution over the whole remaining grid, the lengths of what
    it finds, and a head of two layers. So logits do not change when the input turns.

    Args:
        config: widths and options.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        group = GROUPS[config.group]
        self.in_type = FieldType.image(group, config.in_channels)
        self.out_type = FieldType.image(group, config.classes)
        self.blocks = nn.Sequential(*_blocks(config, self.in_type))
        found = _type(group, config.widths[-1][-1], config.degrees)
        self.encoder = _encoder(config, found) if config.depth else nn.Identity()
        features = _type(group, config.features, 1)
        self.flatten = _conv(config, found, features, config.sizes[-1], padding=0)
        self.norm = BatchNorm(features)
        self.invariants = Invariants(features)
        self.head = head(group, features.copies, config.hidden, config.classes, config.dropout)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch classes"]:
        require_size(self.config, x)
        x = self.encoder(self.blocks(x))
        x = self.invariants(self.norm(self.flatten(x)))
        return self.head(x.flatten(1))


def head(group: Group, features: int, hidden: int, classes: int, dropout: float) -> nn.Sequential:
    """FC, batch norm, ReLU, dropout, FC (paper, appendix)."""
    return nn.Sequential(
        nn.Linear(features, hidden),
        BatchNorm(FieldType.image(group, hidden)),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )


def _blocks(config: ClassifierConfig, image: FieldType) -> Iterator[nn.Module]:
    before = image
    for i, widths in enumerate(config.widths):
        if i:
            yield AvgPool(before, kernel_size=config.pools[i - 1], antialiased=config.antialiased, blur=config.blur)
        for j, copies in enumerate(widths):
            after, is_last = _type(before.group, copies, config.degrees), j == len(widths) - 1
            yield _conv(config, before, after, config.kernel_sizes[i])
            if is_last or config.norms == "convolution":
                yield (BatchNorm if config.norm == "batch" else LayerNorm)(after)
            if not is_last or config.norms == "convolution":
                yield _nonlinearity(config, after)
            before = after


def _nonlinearity(config: ClassifierConfig, field_type: FieldType) -> nn.Module:
    if config.nonlinearity == "gated":
        return Gated(field_type, profiles=config.profiles, tolerance=config.tolerance)
    if config.nonlinearity == "fourier":
        return FourierReLU(field_type, oversampling=config.oversampling)
    return NormReLU(field_type, bias=config.bias)


def _conv(
    config: ClassifierConfig,
    before: FieldType,
    after: FieldType,
    kernel_size: int,
    padding: int | Literal["same"] = "same",
) -> Conv:
    family, tolerance = config.profiles, config.tolerance
    return Conv(before, after, kernel_size=kernel_size, padding=padding, profiles=family, tolerance=tolerance)


def _encoder(config: ClassifierConfig, field_type: FieldType) -> Encoder:
    return Encoder(field_type, num_heads=config.num_heads, depth=config.depth, dropout=config.attention_dropout)


def _type(group: Group, copies: Copies, degrees: int) -> FieldType:
    return FieldType(group, (copies,) * degrees if isinstance(copies, int) else copies)
