import torch
from e3nn import o3

type_f, type_g = o3.Irreps("8x0e + 4x1o"), o3.Irreps("2x1o + 2x2e")
f, g = type_f.randn(1, 9, 9, 9, -1), type_g.randn(1, 9, 9, 9, -1)
both = torch.cat([f, g], dim=-1)
layer = o3.Linear(type_f + type_g, type_f)
y = layer(both)

# check
from e3nn.util.test import assert_equivariant  # noqa: E402

assert y.shape == (1, 9, 9, 9, type_f.dim)
assert_equivariant(layer, irreps_in=[type_f + type_g], irreps_out=[type_f], tolerance=1e-4)
