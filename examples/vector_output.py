"""An autoencoder-like network with a vector field as output: from an image to its gradient, in 2D and in 3D.

The output is a field of degree 1. Rotating the input moves the vectors and rotates each of them, by construction: a
network with dim plain output channels would have to learn that.
"""

import torch
import torch.nn.functional as F
from torch import nn

import steerformer as sf


def encoder_decoder(group: sf.groups.Group) -> nn.Sequential:
    """Half of the resolution in the middle; vectors at the end."""
    image, features, vectors = (
        sf.FieldType.image(group, 1),
        sf.FieldType(group, (8, 4, 2)),
        sf.FieldType.vectors(group, 1),
    )
    return nn.Sequential(
        sf.nn.Conv(image, features, kernel_size=5),
        sf.nn.FourierReLU(features),
        sf.nn.AvgPool(features, kernel_size=2, antialiased=True),
        sf.nn.Conv(features, features, kernel_size=3),
        sf.nn.FourierReLU(features),
        sf.nn.Resample(features, scale=2),
        sf.nn.Conv(features, vectors, kernel_size=5),
    )


def main() -> None:
    torch.manual_seed(0)
    for group, size in ((sf.SO2, 24), (sf.SO3, 12)):
        net, vectors = encoder_decoder(group), sf.FieldType.vectors(group, 1)
        optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
        losses = []
        for step in range(60):
            x = sf.testing.blobs(sf.FieldType.image(group, 1), batch=4, seed=step, dtype=torch.float32).sample(size)
            gradient = torch.stack(torch.gradient(x[:, 0], dim=tuple(range(1, x.ndim - 1))), dim=1)
            predicted = sf.to_cartesian(net(x), vectors)[:, 0]  # (batch, dim, *space), components in axis order
            loss = F.mse_loss(predicted, gradient) / gradient.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"{group}: relative squared error of the gradient {losses[0]:.2f} -> {losses[-1]:.2f}")
        sf.testing.assert_equivariant(net)  # vectors rotate with the image: exact under rotations of the grid


if __name__ == "__main__":
    main()
