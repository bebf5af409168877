import torch

import steerformer as sf

volume, features = sf.FieldType.image(sf.SO3, 4), sf.FieldType(sf.SO3, (8, 4, 2))
conv = sf.nn.Conv(volume, features, kernel_size=5)
y = conv(torch.randn(1, 4, 9, 9, 9))

# check
assert y.shape == (1, features.channels, 9, 9, 9)
sf.testing.assert_equivariant(conv)
