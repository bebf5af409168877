"""The control: a plain convolutional network, which is not equivariant to rotations."""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS
from steerformer.models.classifier import head
from steerformer.models.config import CNNConfig
from steerformer.models.input_checks import require_size
from steerformer.nn import AvgPool, BatchNorm
from steerformer.nn.ops import plain_conv


class CNN(nn.Module):
    """Plain CNN: blocks of [convolution, batch norm, ReLU], pooling, and the head of the steerable classifier.

    Args:
        config: widths and options.
    """

    def __init__(self, config: CNNConfig) -> None:
        super().__init__()
        self.config = config
        group = GROUPS[config.group]
        self.in_type = FieldType.image(group, config.in_channels)
        self.out_type = FieldType.image(group, config.classes)
        self.blocks = nn.Sequential(*_blocks(config))
        features = config.widths[-1][-1] * config.sizes[-1] ** group.dim
        self.head = head(group, features, config.hidden, config.classes, config.dropout)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch classes"]:
        """Logits of each class."""
        require_size(self.config, x)
        return self.head(self.blocks(x).flatten(1))


def _blocks(config: CNNConfig) -> Iterator[nn.Module]:
    group = GROUPS[config.group]
    before = config.in_channels
    for i, widths in enumerate(config.widths):
        if i:
            yield AvgPool(FieldType.image(group, before), kernel_size=config.pools[i - 1])
        for after in widths:
            yield plain_conv(group.dim, before, after, config.kernel_sizes[i])
            yield BatchNorm(FieldType.image(group, after))
            yield nn.ReLU()
            before = after
