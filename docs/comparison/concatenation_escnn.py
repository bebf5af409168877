import torch
from escnn import gspaces, nn

space = gspaces.rot3dOnR3(maximum_frequency=2)
irrep = space.fibergroup.irrep
type_f = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4)
type_g = space.type(*[irrep(1)] * 2, *[irrep(2)] * 2)
f, g = type_f(torch.randn(1, type_f.size, 9, 9, 9)), type_g(torch.randn(1, type_g.size, 9, 9, 9))
both = nn.tensor_directsum([f, g])
layer = nn.R3Conv(type_f + type_g, type_f, kernel_size=1)
y = layer(both)

# check
from grid_rotation import escnn_commutes  # noqa: E402

assert y.type == type_f
assert escnn_commutes(layer, both.type)
