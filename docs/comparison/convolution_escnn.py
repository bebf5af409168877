import torch
from escnn import gspaces, nn

space = gspaces.rot3dOnR3(maximum_frequency=2)
irrep = space.fibergroup.irrep
volume = space.type(*[space.trivial_repr] * 4)
features = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4, *[irrep(2)] * 2)
conv = nn.R3Conv(volume, features, kernel_size=5, padding=2)
y = conv(volume(torch.randn(1, 4, 9, 9, 9)))

# check
from grid_rotation import escnn_commutes  # noqa: E402

assert y.shape == (1, 30, 9, 9, 9)
assert escnn_commutes(conv, volume)
