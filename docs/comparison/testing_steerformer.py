import torch.nn.functional as F

import steerformer as sf


def layer(x):
    return x * F.softplus(x.norm(dim=1, keepdim=True))


features = sf.FieldType(sf.SO3, (8, 4, 2))
sf.testing.assert_equivariant(layer, in_type=features, out_type=features)  # all rotations of the grid, exactly
any_angle = [sf.SO3.random_rotation()]
sf.testing.assert_equivariant(layer, rotations=any_angle, in_type=features, out_type=features)

# check
try:
    sf.testing.assert_equivariant(F.relu, in_type=features, out_type=features)
except AssertionError:
    pass
else:
    raise AssertionError("the negative control passed")
