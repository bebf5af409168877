import torch
from e3nn import o3
from e3nn.nn.models.v2104.voxel_convolution import Convolution

conv = Convolution("1x0e", "1x1o", o3.Irreps.spherical_harmonics(1), diameter=5, num_radial_basis=3)
v = conv(torch.randn(1, 1, 9, 9, 9))

# check
from grid_rotation import ABOUT_LAST_AXIS, relative_difference, rotate_grid  # noqa: E402

assert v.shape == (1, 3, 9, 9, 9)  # components along the axes of the tensor
x = torch.randn(1, 1, 9, 9, 9)
expected = torch.einsum("ij,bjxyz->bixyz", ABOUT_LAST_AXIS, rotate_grid(conv(x)))
assert relative_difference(conv(rotate_grid(x)), expected) < 1e-5
