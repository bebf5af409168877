import steerformer as sf

features = sf.FieldType(sf.SO3, (8, 4, 2))
block = sf.nn.TransformerBlock(features, num_heads=1)
y = block(features.randn(1, 5))

# check
sf.testing.assert_equivariant(block, size=5)
