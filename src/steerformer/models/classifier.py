"""The paper's classifier: steerable convolutions, a transformer, invariants and an MLP head."""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS, Group
from steerformer.models.blocks import block, conv, encoder, field_type, pool
from steerformer.models.config import ClassifierConfig
from steerformer.models.input_checks import require_size
from steerformer.nn import BatchNorm, Invariants, RadialWindow


class Classifier(nn.Module):
    """Rotation-invariant classifier: convolutions, attention, invariants and an MLP head (paper, section 5).

    Blocks are [Conv, NormReLU, Conv, norm], with a pooling between two of them, and after the last one with
    ``final_pool``. An encoder follows (``depth: 0`` leaves
    it out: the paper's convolution baseline), then a convolution over the whole remaining grid, the norms of its
    features, and a head of two layers. With ``window``, attention and this convolution see a smooth disk or ball
    instead of the square or cube. So logits are invariant to rotations of the input.

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
        deepest = field_type(group, config.deepest, config.degrees, real=config.real)
        width = config.window or None
        self.encoder = encoder(config, deepest, key_window=width) if config.depth else nn.Identity()
        self.window = RadialWindow(deepest, width=width) if width else nn.Identity()
        features = field_type(group, config.features, 1, real=config.real)
        self.flatten = conv(config, deepest, features, config.final_size, padding=0)
        self.norm = BatchNorm(features)
        self.invariants = Invariants(features)
        self.head = head(group, features.copies, config.hidden, config.classes, config.dropout)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch classes"]:
        """Logits of each class."""
        require_size(self.config, x)
        x = self.encoder(self.blocks(x))
        x = self.invariants(self.norm(self.flatten(self.window(x))))
        return self.head(x.flatten(1))


def head(group: Group, features: int, hidden: int, classes: int, dropout: float) -> nn.Sequential:
    """MLP head: linear, batch norm, ReLU, dropout, linear (paper, appendix)."""
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
            yield pool(config, before, config.pools[i - 1])
        after = (field_type(before.group, copies, config.degrees, real=config.real) for copies in widths)
        types = [before, *after]
        yield from block(config, types, config.kernel_sizes[i])
        before = types[-1]
    if config.final_pool > 1:
        yield pool(config, before, config.final_pool)
