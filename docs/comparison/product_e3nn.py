from e3nn import o3

type_f, type_g = o3.Irreps("4x1o + 4x2e"), o3.Irreps("4x1o")
paths = [(0, 0, 0, "uvw", True), (1, 0, 1, "uvw", True)]
product = o3.TensorProduct(type_f, type_g, "4x0e + 4x1o", paths)
y = product(type_f.randn(1, 9, 9, 9, -1), type_g.randn(1, 9, 9, 9, -1))

# check
from e3nn.util.test import assert_equivariant  # noqa: E402

assert y.shape == (1, 9, 9, 9, 16)
assert_equivariant(product)
