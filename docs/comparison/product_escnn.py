import torch
from escnn import gspaces, nn


class TensorProduct(torch.nn.Module):
    def __init__(self, type_f, type_g, out_type):
        super().__init__()
        pairs = [f.tensor(g) for f in type_f.representations for g in type_g.representations]
        self.pairs = type_f.gspace.type(*pairs)
        self.mix = nn.R3Conv(self.pairs, out_type, kernel_size=1, bias=False)

    def forward(self, f, g):
        pieces = [part.tensor.split([rep.size for rep in part.type.representations], dim=1) for part in (f, g)]
        products = [torch.einsum("bixyz,bjxyz->bijxyz", a, b).flatten(1, 2) for a in pieces[0] for b in pieces[1]]
        return self.mix(self.pairs(torch.cat(products, dim=1)))


space = gspaces.rot3dOnR3(maximum_frequency=3)
irrep = space.fibergroup.irrep
vectors, tensors = space.type(*[irrep(1)] * 4), space.type(*[irrep(2)] * 4)
to_scalars = TensorProduct(vectors, vectors, space.type(*[irrep(0)] * 4))
to_vectors = TensorProduct(tensors, vectors, space.type(*[irrep(1)] * 4))
f = (vectors + tensors)(torch.randn(1, 32, 9, 9, 9))
g = vectors(torch.randn(1, 12, 9, 9, 9))
first, second = f.split([4])
y = nn.tensor_directsum([to_scalars(first, g), to_vectors(second, g)])

# check
assert y.shape == (1, 16, 9, 9, 9)
element = space.fibergroup.sample()
rotated = [field.transform_fibers(element) for field in (first, second, g)]
again = nn.tensor_directsum([to_scalars(rotated[0], rotated[2]), to_vectors(rotated[1], rotated[2])])
assert (again.tensor - y.transform_fibers(element).tensor).norm() < 1e-4 * y.tensor.norm()
