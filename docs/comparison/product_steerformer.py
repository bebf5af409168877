import steerformer as sf

type_f, type_g, out = (sf.FieldType(sf.SO3, text) for text in ("4x1+4x2", "4x1", "4x0+4x1"))
product = sf.nn.TensorProduct(type_f, type_g, out, paths=[(1, 1, 0), (2, 1, 1)])
y = product(type_f.randn(1, 9), type_g.randn(1, 9))

# check
R = sf.SO3.random_rotation()
f, g = type_f.randn(2), type_g.randn(2)
found, expected = product(type_f.rotate(f, R), type_g.rotate(g, R)), out.rotate(product(f, g), R)
assert (found - expected).norm() < 1e-4 * expected.norm()
