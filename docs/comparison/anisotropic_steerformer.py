import torch

import steerformer as sf

volume, features = sf.FieldType.image(sf.SO3, 1), sf.FieldType(sf.SO3, (8, 4, 2))
conv = sf.nn.Conv(volume, features, kernel_size=(5, 5, 3), spacing=(1.0, 1.0, 2.0))
y = conv(torch.randn(1, 1, 16, 16, 8))

# check
assert y.shape == (1, features.channels, 16, 16, 8)
sf.testing.assert_equivariant(conv, spacing=(1.0, 1.0, 2.0), size=(7, 7, 5))
