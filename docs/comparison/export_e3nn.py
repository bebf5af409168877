import torch
from e3nn import nn, o3
from e3nn.nn.models.v2104.voxel_convolution import Convolution


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        harmonics = o3.Irreps.spherical_harmonics(2)
        self.gate = nn.Gate("8x0e", [torch.relu], "6x0e", [torch.sigmoid], "4x1o + 2x2e")
        self.first = Convolution("1x0e", self.gate.irreps_in, harmonics, diameter=5, num_radial_basis=3)
        self.second = Convolution(self.gate.irreps_out, "2x0e", harmonics, diameter=3, num_radial_basis=2)

    def forward(self, x):
        return self.second(self.gate(self.first(x).movedim(1, -1)).movedim(-1, 1))


net = Net().eval()
x = torch.randn(1, 1, 12, 12, 12)
free = {0: "batch", 2: "first", 3: "second", 4: "third"}
torch.onnx.export(net, (x,), "net.onnx", dynamo=True, dynamic_shapes=(free,))

# check
import onnxruntime  # noqa: E402

session = onnxruntime.InferenceSession("net.onnx")
x = torch.randn(2, 1, 10, 12, 14)
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
assert abs(found - net(x).detach().numpy()).max() < 1e-4
