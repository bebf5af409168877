"""The control for segmentation: MONAI's UNet, which is not equivariant to rotations."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS
from steerformer.models.config import MonaiUNetConfig
from steerformer.nn.ops import require_space


class MonaiUNet(nn.Module):
    """MONAI's UNet with the interface of :class:`~steerformer.models.UNet`, for grids of any size.

    Args:
        config: channels and options.
    """

    def __init__(self, config: MonaiUNetConfig) -> None:
        from monai.networks.nets.unet import UNet  # deferred: the import takes seconds

        super().__init__()
        self.config = config
        group = GROUPS[config.group]
        self.in_type = FieldType.image(group, config.in_channels)
        self.out_type = FieldType.image(group, config.classes)
        steps = len(config.channels) - 1
        self.stride = config.pool**steps
        self.net: nn.Module = UNet(
            spatial_dims=group.dim,
            in_channels=config.in_channels,
            out_channels=config.classes,
            channels=config.channels,
            strides=(config.pool,) * steps,
            kernel_size=config.kernel_size,
            up_kernel_size=config.kernel_size,
            num_res_units=config.residual_units,
            norm=config.norm,
            dropout=config.dropout,
        )

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch classes *space"]:
        """Logits of every voxel."""
        require_space(self.in_type, x, "MonaiUNet")
        space = x.shape[2:]
        margins = [_margins(n, self.stride) for n in space]
        logits: Tensor = self.net(F.pad(x, [margin for both in reversed(margins) for margin in both]))
        for axis, (n, (before, _)) in enumerate(zip(space, margins, strict=True), start=2):
            logits = logits.narrow(axis, before, n)
        return logits


def _margins(n: int, stride: int) -> Sequence[int]:
    """Zero padding before and after ``n`` voxels to a multiple of the stride; two strides at least, for its norms."""
    missing = max(-(-n // stride), 2) * stride - n
    return missing // 2, missing - missing // 2
