"""A steerable vision transformer: patches, transformer blocks, invariants; its logits do not change with orientation.

A strided steerable convolution is the patch embedding of a ViT, and attention the rest. Trained for a few steps on
images of one or two blobs, it predicts the same class for every orientation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import steerformer as sf


class SteerableViT(nn.Module):
    """Logits of images (batch, channels, 28, 28), invariant to rotations."""

    def __init__(self, channels: int, classes: int, *, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        image, tokens = sf.FieldType.image(sf.SO2, channels), sf.FieldType(sf.SO2, (width,) * 3)
        self.embed = sf.nn.Conv(image, tokens, kernel_size=8, stride=4)  # overlapping patches: less aliasing
        self.encoder = sf.nn.Encoder(tokens, num_heads=4, depth=depth, radial="smooth")
        self.invariants = sf.nn.Invariants(tokens)
        self.head = nn.Linear(self.invariants.out_type.channels, classes)
        self.in_type, self.out_type = image, sf.FieldType.image(sf.SO2, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.invariants(self.encoder(self.embed(x)))
        return self.head(tokens.mean(dim=(2, 3)))  # the mean over tokens is invariant, too


def images(count: int) -> tuple[Tensor, Tensor]:
    """Images of one (class 0) or two blobs (class 1) near the center."""
    y, x = torch.meshgrid(*[torch.arange(28.0) - 13.5] * 2, indexing="ij")
    centers = 5 * torch.randn(count, 2, 2)
    blobs = torch.exp(-((y - centers[..., 0, None, None]) ** 2 + (x - centers[..., 1, None, None]) ** 2) / 8)
    labels = torch.arange(count) % 2
    return (blobs[:, :1] + labels[:, None, None, None] * blobs[:, 1:]), labels


def main() -> None:
    torch.manual_seed(0)
    model = SteerableViT(channels=1, classes=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        x, labels = images(32)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, labels = images(200)
    upright, rotated = model(x), model(x.rot90(1, (2, 3)))
    print(f"accuracy {(upright.argmax(1) == labels).float().mean():.1%}")
    print(f"change of the logits under a rotation by 90 degrees: {(upright - rotated).abs().max():.1e}")


if __name__ == "__main__":
    main()
