import torch
from escnn import gspaces, nn


class TransformerBlock(torch.nn.Module):
    def __init__(self, field_type):
        super().__init__()
        self.field_type, self.harmonics = field_type, nn.HarmonicPolynomialR3(L=2)
        points = gspaces.no_base_space(field_type.fibergroup).type(*field_type.representations)
        self.norms = torch.nn.ModuleList(nn.IIDBatchNorm3d(field_type) for _ in range(2))
        self.query, self.key, self.value, self.out, self.expand, self.contract = (
            nn.R3Conv(field_type, field_type, kernel_size=1) for _ in range(6)
        )
        self.key_position, self.value_position = (nn.Linear(self.harmonics.out_type, points) for _ in range(2))
        self.nonlinearity = nn.NormNonLinearity(field_type)

    def positions(self, space):
        axes = [torch.arange(n, dtype=torch.float) for n in space]
        first, second, third = torch.meshgrid(*axes, indexing="ij")
        points = torch.stack([third, -second, -first], dim=-1).flatten(0, 2)  # x, y and z
        offsets = points[:, None] - points
        radial = torch.exp(-offsets.square().sum(-1, keepdim=True) / 2)
        harmonics = self.harmonics(self.harmonics.in_type(offsets.flatten(0, 1)))
        encodings = (layer(harmonics).tensor for layer in (self.key_position, self.value_position))
        return [radial * encoding.unflatten(0, radial.shape[:2]) for encoding in encodings]

    def attention(self, x):
        q, k, v = (layer(x).tensor.flatten(2).mT for layer in (self.query, self.key, self.value))
        key_position, value_position = self.positions(x.shape[2:])
        scores = q @ k.mT + torch.einsum("bic,ijc->bij", q, key_position)
        weights = torch.softmax(scores / q.shape[-1] ** 0.5, dim=-1)
        mixed = weights @ v + torch.einsum("bij,ijc->bic", weights, value_position)
        return self.out(self.field_type(mixed.mT.unflatten(2, x.shape[2:])))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.contract(self.nonlinearity(self.expand(self.norms[1](x))))


space = gspaces.rot3dOnR3(maximum_frequency=2)
irrep = space.fibergroup.irrep
features = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4, *[irrep(2)] * 2)
block = TransformerBlock(features)
y = block(features(torch.randn(1, features.size, 5, 5, 5)))

# check
from grid_rotation import escnn_commutes  # noqa: E402

assert escnn_commutes(block.eval(), features, size=(5, 5, 5))
