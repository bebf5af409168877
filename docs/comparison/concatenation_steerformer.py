import steerformer as sf

type_f, type_g = sf.FieldType(sf.SO3, "8x0+4x1"), sf.FieldType(sf.SO3, "2x1+2x2")
f, g = type_f.randn(1, 9), type_g.randn(1, 9)
both = sf.concat([f, g], [type_f, type_g])
layer = sf.nn.Linear(type_f + type_g, type_f)
y = layer(both)

# check
R = sf.SO3.grid_rotations()[5].float()
rotated = sf.concat([type_f.rotate(f, R), type_g.rotate(g, R)], [type_f, type_g])
assert (layer(rotated) - type_f.rotate(y, R)).norm() < 1e-5 * y.norm()
