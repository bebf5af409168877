"""Registration by cross-attention: from a fixed and a moved image to the displacement of every voxel, in 2D and in 3D.

Voxels of the fixed image attend to those of the moved image within a radius; displacements are vectors, and rotate with
both images by construction.
"""

import torch
from torch import Tensor, nn

import steerformer as sf


class Registration(nn.Module):
    """Features of both images, then a decoder block whose context is the moved image."""

    def __init__(self, group: sf.groups.Group) -> None:
        super().__init__()
        image, features = sf.FieldType.image(group, 1), sf.FieldType(group, (8, 8, 4))
        self.vectors, self.encoder = sf.FieldType.vectors(group, 1), sf.nn.Conv(image, features, kernel_size=5)
        options = {"num_heads": 4, "radius": 3.5, "falloff": 1.0, "radial": "smooth", "gain": 1.0}
        self.decoder = sf.nn.DecoderBlock(features, features, self_attention=False, **options)
        self.head = sf.nn.Conv(features, self.vectors, kernel_size=3)

    def forward(self, fixed: Tensor, moved: Tensor) -> Tensor:
        field = self.head(self.decoder(self.encoder(fixed), self.encoder(moved)))
        return sf.to_cartesian(field, self.vectors)[:, 0]  # (batch, dim, *space), in axis order


def pair(group: sf.groups.Group, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Blobs, the same blobs moved by up to two voxels along each axis, and the displacement."""
    scene = sf.testing.blobs(sf.FieldType.image(group, 1), batch=4, seed=seed, dtype=torch.float32)
    fixed, axes = scene.sample(size), tuple(range(1, 1 + group.dim))
    shift = torch.randint(-2, 3, (4, group.dim), generator=torch.Generator().manual_seed(seed))
    moved = torch.stack([x.roll(s.tolist(), axes) for x, s in zip(fixed, shift, strict=True)])
    return fixed, moved, shift.float().view(4, group.dim, *[1] * group.dim).expand(-1, -1, *fixed.shape[2:])


def main() -> None:
    for group, size in ((sf.SO2, 14), (sf.SO3, 7)):
        torch.manual_seed(0)
        net, errors = Registration(group), []
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        for step in range(40):
            fixed, moved, shift = pair(group, size, step)
            inside = fixed.abs() > 0.1 * fixed.abs().amax()  # where there is something to see
            error = ((net(fixed, moved) - shift) * inside).square().sum() / (shift * inside).square().sum()
            errors.append(error.item())
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
        print(f"{group}: squared error of displacements {errors[0]:.2f} -> {sum(errors[-5:]) / 5:.2f}")
        R, v, image, vectors = group.grid_rotations()[1], net(fixed, moved), net.encoder.in_type, net.vectors
        rotated = net(image.rotate(fixed, R), image.rotate(moved, R))
        v = sf.to_cartesian(vectors.rotate(sf.from_cartesian(v[:, None], vectors), R), vectors)[:, 0]
        print(f"{group}: both images rotated by 90 degrees: {(rotated - v).norm() / v.norm():.0e}")


if __name__ == "__main__":
    main()
