import torch
from e3nn import o3
from e3nn.nn.models.v2104.voxel_convolution import Convolution

harmonics = o3.Irreps.spherical_harmonics(2)
conv = Convolution("4x0e", "8x0e + 4x1o + 2x2e", harmonics, diameter=5, num_radial_basis=3)
y = conv(torch.randn(1, 4, 9, 9, 9))

# check
from grid_rotation import e3nn_commutes  # noqa: E402

assert y.shape == (1, 30, 9, 9, 9)
assert e3nn_commutes(conv, "4x0e", "8x0e + 4x1o + 2x2e")
