import steerformer as sf

type_f, type_g, out = (sf.FieldType(sf.SO3, text) for text in ("4x1+4x2", "4x1", "4x0+4x1"))
product = sf.nn.TensorProduct(type_f + type_g, out)
f, g = type_f.randn(1, 9), type_g.randn(1, 9)
y = product(sf.concat([f, g], [type_f, type_g]))

# check
sf.testing.assert_equivariant(product)
