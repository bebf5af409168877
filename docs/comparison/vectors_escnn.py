import torch
from escnn import gspaces, nn

space = gspaces.rot3dOnR3(maximum_frequency=2)
volume, vectors = space.type(space.trivial_repr), space.type(space.fibergroup.standard_representation())
conv = nn.R3Conv(volume, vectors, kernel_size=5, padding=2)
x, y, z = conv(volume(torch.randn(1, 1, 9, 9, 9))).tensor.unbind(dim=1)
v = torch.stack([-z, -y, x], dim=1)  # x lies along the last axis of the tensor, y and z against the others

# check
from grid_rotation import ABOUT_LAST_AXIS, relative_difference, rotate_grid  # noqa: E402

assert v.shape == (1, 3, 9, 9, 9)
scalar = torch.randn(1, 1, 9, 9, 9)
found, expected = (conv(volume(f)).tensor.flip(1) * torch.tensor([-1, -1, 1]).view(3, 1, 1, 1)
                   for f in (rotate_grid(scalar), scalar))  # fmt: skip
assert relative_difference(found, torch.einsum("ij,bjxyz->bixyz", ABOUT_LAST_AXIS, rotate_grid(expected))) < 1e-5
