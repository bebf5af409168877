from functools import partial

import numpy as np
import torch
from escnn import gspaces, nn
from escnn.nn.modules.basismanager import BlocksBasisExpansion


class AnisotropicConv(torch.nn.Module):
    def __init__(self, in_type, out_type, kernel_size, spacing, rings):
        super().__init__()
        self.in_type, self.out_type, self.kernel_size = in_type, out_type, kernel_size
        axes = [(np.arange(n) - n // 2) * step for n, step in zip(kernel_size, spacing, strict=True)]
        first, second, third = (grid.flatten() for grid in np.meshgrid(*axes, indexing="ij"))
        points = np.stack([third, -second, -first], axis=1)  # x, y and z
        build = partial(in_type.gspace.build_kernel_basis, rings=rings, sigma=[0.6] * len(rings), maximum_frequency=2)
        self.basis = BlocksBasisExpansion(in_type.representations, out_type.representations, build, points)
        self.weights = torch.nn.Parameter(torch.zeros(self.basis.dimension()))
        nn.init.generalized_he_init(self.weights.data, self.basis)

    def forward(self, x):
        kernel = self.basis(self.weights).unflatten(-1, self.kernel_size)
        padding = [n // 2 for n in self.kernel_size]
        return self.out_type(torch.nn.functional.conv3d(x.tensor, kernel, padding=padding))


space = gspaces.rot3dOnR3(maximum_frequency=2)
irrep = space.fibergroup.irrep
volume = space.type(space.trivial_repr)
features = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4, *[irrep(2)] * 2)
conv = AnisotropicConv(volume, features, (5, 5, 3), spacing=(1, 1, 2), rings=[0, 1, 2])
y = conv(volume(torch.randn(1, 1, 16, 16, 8)))

# check
from grid_rotation import escnn_commutes  # noqa: E402

assert y.shape == (1, 30, 16, 16, 8)
assert escnn_commutes(conv, volume, size=(7, 7, 3))
