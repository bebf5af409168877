import torch.nn.functional as F
from e3nn import o3
from e3nn.util.test import assert_equivariant


def layer(x):
    return x * F.softplus(x.norm(dim=-1, keepdim=True))


features = o3.Irreps("8x0e + 4x1o + 2x2e")
assert_equivariant(layer, irreps_in=[features], irreps_out=[features])

# check
try:
    assert_equivariant(F.relu, irreps_in=[features], irreps_out=[features])
except AssertionError:
    pass
else:
    raise AssertionError("the negative control passed")
