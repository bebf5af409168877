"""The controls for segmentation: MONAI's UNet and DynUNet, which are not equivariant to rotations."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import GROUPS
from steerformer.models.monai_config import MonaiUNetConfig
from steerformer.nn.ops import require_space


class MonaiUNet(nn.Module):
    """MONAI's UNet or DynUNet with the interface of :class:`~steerformer.models.UNet`, for grids of any size.

    With deep supervision, in training mode, logits have an axis of levels, ``(batch, level, class, *space)``: the
    finest first, all on the grid of the input. With ``window``, in eval mode, it predicts in overlapping windows.

    Args:
        config: channels and options.
    """

    def __init__(self, config: MonaiUNetConfig) -> None:
        super().__init__()
        self.config = config
        group = GROUPS[config.group]
        self.in_type = FieldType.image(group, config.in_channels)
        self.out_type = FieldType.image(group, config.classes)
        self.stride = config.pool ** (len(config.channels) - 1)
        self.net = (_unet if config.architecture == "unet" else _dynunet)(config, group.dim)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch *logits"]:
        """Logits of every voxel."""
        require_space(self.in_type, x, "MonaiUNet")
        window = None if self.training else self.config.window
        return self._at_once(x) if window is None else self._in_windows(x, window)

    def _in_windows(self, x: Tensor, window: Sequence[int]) -> Tensor:
        from monai.inferers.utils import sliding_window_inference  # deferred: the import takes seconds

        logits = sliding_window_inference(x, window, 1, self._at_once, overlap=0.5, mode="gaussian")
        assert isinstance(logits, Tensor)
        return logits

    def _at_once(self, x: Tensor) -> Tensor:
        space = x.shape[2:]
        margins = [_margins(n, self.stride, 0 if self.training else self.config.margin) for n in space]
        logits: Tensor = self.net(F.pad(x, [margin for both in reversed(margins) for margin in both]))
        if self.config.architecture == "dynunet":
            heads: list[Tensor] = self.net.heads  # type: ignore[assignment]
            heads[:] = [x.new_zeros(1)] * len(heads)  # it keeps logits of coarser levels, which cannot be copied
        for axis, (n, (before, _)) in enumerate(zip(space, margins, strict=True), start=-len(space)):
            logits = logits.narrow(axis, before, n)
        return logits


def _unet(config: MonaiUNetConfig, dim: int) -> nn.Module:
    from monai.networks.nets.unet import UNet  # deferred: the import takes seconds

    steps = len(config.channels) - 1
    net: nn.Module = UNet(
        spatial_dims=dim,
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
    return net


def _dynunet(config: MonaiUNetConfig, dim: int) -> nn.Module:
    from monai.networks.nets.dynunet import DynUNet

    steps = len(config.channels) - 1
    net: nn.Module = DynUNet(
        spatial_dims=dim,
        in_channels=config.in_channels,
        out_channels=config.classes,
        kernel_size=(config.kernel_size,) * (steps + 1),
        strides=(1, *(config.pool,) * steps),
        upsample_kernel_size=(config.pool,) * steps,
        filters=config.channels,
        dropout=config.dropout or None,
        norm_name=(config.norm, {"affine": True}),
        deep_supervision=config.deep_supervision,
        deep_supr_num=max(steps - 1, 1),
    )
    for alias in ("input_block", "downsamples", "bottleneck", "upsamples", "deep_supervision_heads"):
        if hasattr(net, alias):
            delattr(net, alias)  # skip_layers has them, too: weights would be saved twice
    return net


def _margins(n: int, stride: int, least: int) -> Sequence[int]:
    """Zero padding before and after ``n`` voxels to a multiple of the stride; two strides at least, for its norms."""
    missing = max((n + 2 * least + stride - 1) // stride, 2) * stride - n
    return missing // 2, missing - missing // 2
