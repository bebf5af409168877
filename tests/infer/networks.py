"""A small network with a known receptive field."""

from torch import nn

from steerformer import FieldType


class Local(nn.Module):
    """A plain CNN that sees ``reach`` voxels around each voxel of a grid pooled by ``stride``; not equivariant."""

    def __init__(self, group, *, reach=1, stride=1, channels=1, classes=3, width=4):
        super().__init__()
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[group.dim]
        pool = {2: nn.AvgPool2d, 3: nn.AvgPool3d}[group.dim]
        self.in_type, self.out_type = FieldType.image(group, channels), FieldType.image(group, classes)
        self.stride = stride
        self.first, self.last = conv(channels, width, 2 * reach + 1, padding=reach), conv(width, classes, 1)
        self.pool, self.up = pool(stride, ceil_mode=True), nn.Upsample(scale_factor=stride)

    def forward(self, x):
        pooled = self.up(self.pool(x))[(..., *(slice(n) for n in x.shape[2:]))]
        return self.last(self.first(pooled).relu())
