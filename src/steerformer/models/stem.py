"""Stem and head of a U-Net whose levels work on a coarser grid than that of the image."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steerformer.models.unet_levels import crop
from steerformer.nn import Conv, Resample
from steerformer.nn.exported import centered_voxels, is_symbolic
from steerformer.nn.ops import mean_of_neighbors, pad
from steerformer.nn.separable import gaussian_windows


class Stem(nn.Module):
    """Antialiased convolution with stride 2 from an image to the features of the finest level.

    ``n`` voxels become ``ceil(n / 2)``, on a grid with the same center. The image, which has few channels, is blurred
    instead of the features: convolutions commute. An axis with an odd number of voxels is sampled between its voxels
    first, so that the windows of the convolution are centered on it.

    Args:
        conv: convolution with an even kernel and stride 2.
        blur: standard deviation of the Gaussian, in voxels of the image; ``None`` for no blur.
    """

    def __init__(self, conv: Conv, blur: float | None) -> None:
        super().__init__()
        self.conv, self.blur = conv, blur

    def forward(self, x: Float[Tensor, "batch in *space"]) -> Float[Tensor, "batch out *coarse"]:
        """Features on the coarse grid."""
        for axis, n in enumerate(x.shape[2:], start=2):
            if self.blur is not None:
                window = gaussian_windows(x, axis, n + n % 2, 1, self.blur)
                x = (x.movedim(axis, -1) @ window.matrix.mT).movedim(-1, axis)
            elif is_symbolic(n):
                x = centered_voxels(x, axis, n + n % 2)
            elif n % 2:
                x = mean_of_neighbors(
                    pad(x, [int(other == axis) for other in range(2, x.ndim)], mode="replicate"), axis
                )
        out: Tensor = self.conv(x)
        return out


class FullResolutionHead(nn.Module):
    """Features on the coarse grid and the image to the logits on the grid of the image.

    A convolution on the coarse grid gives a first estimate of the logits and a few real scalars, both interpolated.
    Scalars of the image are added to the interpolated ones; a norm, a ReLU and a convolution make a correction of the
    logits of them.

    Args:
        coarse: convolution of the features to the scalars and the logits.
        skip: convolution of the image to the scalars.
        norm: norm of the scalars.
        last: convolution of the scalars to the correction of the logits.
    """

    def __init__(self, coarse: Conv, skip: Conv, norm: nn.Module, last: Conv) -> None:
        super().__init__()
        self.coarse, self.resample = coarse, Resample(coarse.out_type)
        self.skip, self.norm, self.last = skip, norm, last

    def forward(
        self, x: Float[Tensor, "batch in *coarse"], image: Float[Tensor, "batch channels *space"]
    ) -> Float[Tensor, "batch out *space"]:
        """Logits without their bias."""
        fine = self.resample(self.coarse(x), [2 * n for n in x.shape[2:]])
        counts = [self.skip.out_type.channels, self.last.out_type.channels]
        scalars, logits = crop(fine, image.shape[2:]).split(counts, dim=1)
        correction: Tensor = self.last(torch.relu(self.norm(scalars + self.skip(image))))
        return logits + correction
