import torch
from e3nn import o3
from e3nn.nn.models.v2104.voxel_convolution import Convolution

irreps, harmonics = o3.Irreps("8x0e + 4x1o + 2x2e"), o3.Irreps.spherical_harmonics(2)
conv = Convolution("1x0e", irreps, harmonics, diameter=5, num_radial_basis=3, steps=(1, 1, 2))
y = conv(torch.randn(1, 1, 16, 16, 8))

# check
from grid_rotation import e3nn_commutes  # noqa: E402

assert y.shape == (1, 30, 16, 16, 8) and conv.kernel().shape[2:] == (5, 5, 3)
assert e3nn_commutes(conv, "1x0e", "8x0e + 4x1o + 2x2e")
