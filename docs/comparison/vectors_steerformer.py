import torch

import steerformer as sf

volume, vectors = sf.FieldType.image(sf.SO3, 1), sf.FieldType.vectors(sf.SO3, 1)
conv = sf.nn.Conv(volume, vectors, kernel_size=5)
v = sf.to_cartesian(conv(torch.randn(1, 1, 9, 9, 9)), vectors)[:, 0]

# check
from grid_rotation import ABOUT_LAST_AXIS, relative_difference, rotate_grid  # noqa: E402

assert v.shape == (1, 3, 9, 9, 9)  # components along the axes of the tensor
x = torch.randn(1, 1, 9, 9, 9)
found, expected = (sf.to_cartesian(conv(y), vectors)[:, 0] for y in (rotate_grid(x), x))
assert relative_difference(found, torch.einsum("ij,bjxyz->bixyz", ABOUT_LAST_AXIS, rotate_grid(expected))) < 1e-5
