"""Small classifiers: one equivariant by construction, and a plain one as the negative control."""

from torch import nn

from steerformer import FieldType
from steerformer.nn import AvgPool, BatchNorm, Conv, Encoder, Invariants, NormReLU


class Tiny(nn.Module):
    """Convolution, pooling, a transformer block, invariants, logits."""

    def __init__(self, group, size=12, classes=3, kernel_size=5):
        super().__init__()
        image, features = FieldType.image(group, 1), FieldType(group, (2, 2))
        self.in_type, self.out_type = image, FieldType.image(group, classes)
        self.conv, self.pool = Conv(image, features, kernel_size=kernel_size), AvgPool(features, kernel_size=2)
        self.encoder = Encoder(features, num_heads=2)
        self.last = Conv(features, FieldType(group, (4,)), kernel_size=size // 2, padding=0)
        self.nonlinearity, self.invariants = NormReLU(features), Invariants(self.last.out_type)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        x = self.encoder(self.pool(self.nonlinearity(self.conv(x))))
        return self.head(self.invariants(self.last(x)).flatten(1))


class Plain(nn.Module):
    """A classifier of the same size made of torch's layers, which are not equivariant."""

    def __init__(self, group, size=12, classes=3):
        super().__init__()
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[group.dim]
        self.in_type, self.out_type = FieldType.image(group, 1), FieldType.image(group, classes)
        self.conv, self.norm = conv(1, 4, 3, padding=1), BatchNorm(FieldType.image(group, 4))
        self.pool = AvgPool(self.norm.out_type, kernel_size=2)
        self.head = nn.Linear(4 * (size // 2) ** group.dim, classes)

    def forward(self, x):
        return self.head(self.pool(self.norm(self.conv(x)).relu()).flatten(1))
