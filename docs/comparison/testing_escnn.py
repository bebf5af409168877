import torch
import torch.nn.functional as F
from escnn import gspaces


def layer(x):
    return x.type(x.tensor * F.softplus(x.tensor.norm(dim=1, keepdim=True)))


space = gspaces.rot3dOnR3(maximum_frequency=2)
irrep = space.fibergroup.irrep
features = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4, *[irrep(2)] * 2)
x = features(torch.randn(2, features.size, 5, 5, 5))
for g in [space.fibergroup.sample() for _ in range(20)]:
    assert torch.allclose(layer(x.transform_fibers(g)).tensor, layer(x).transform_fibers(g).tensor, atol=1e-4)

# check
wrong = torch.relu(x.transform_fibers(g).tensor) - features(torch.relu(x.tensor)).transform_fibers(g).tensor
assert wrong.abs().max() > 0.1  # the negative control
