import torch
from e3nn import nn, o3


class TransformerBlock(torch.nn.Module):
    def __init__(self, irreps):
        super().__init__()
        self.harmonics = o3.Irreps.spherical_harmonics(2)
        self.norms = torch.nn.ModuleList(nn.BatchNorm(irreps) for _ in range(2))
        self.query, self.key, self.value, self.out, self.expand, self.contract = (
            o3.Linear(irreps, irreps) for _ in range(6)
        )
        self.key_position, self.value_position = (o3.Linear(self.harmonics, irreps) for _ in range(2))
        self.nonlinearity = nn.NormActivation(irreps, torch.sigmoid)

    def attention(self, x, points):
        offsets = points[:, None] - points
        radial = torch.exp(-offsets.square().sum(-1, keepdim=True) / 2)
        encodings = radial * o3.spherical_harmonics(self.harmonics, offsets, normalize=True)
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.mT + torch.einsum("bic,ijc->bij", q, self.key_position(encodings))
        weights = torch.softmax(scores / q.shape[-1] ** 0.5, dim=-1)
        return self.out(weights @ v + torch.einsum("bij,ijc->bic", weights, self.value_position(encodings)))

    def forward(self, x, points):
        x = x + self.attention(self.norms[0](x), points)
        return x + self.contract(self.nonlinearity(self.expand(self.norms[1](x))))


features = o3.Irreps("8x0e + 4x1o + 2x2e")
block = TransformerBlock(features)
points = torch.cartesian_prod(*[torch.arange(5.0)] * 3)
y = block(features.randn(1, 125, -1), points)

# check
block.eval()
x, R = features.randn(1, 125, -1), o3.rand_matrix()
found, expected = block(x @ features.D_from_matrix(R).T, points @ R.T), block(x, points) @ features.D_from_matrix(R).T
assert (found - expected).norm() < 1e-4 * expected.norm()
