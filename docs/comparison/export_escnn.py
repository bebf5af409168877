import torch
from escnn import gspaces, nn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        space = gspaces.rot3dOnR3(maximum_frequency=2)
        irrep = space.fibergroup.irrep
        self.volume = space.type(space.trivial_repr)
        features = space.type(*[irrep(0)] * 8, *[irrep(1)] * 4, *[irrep(2)] * 2)
        labels = space.type(*[space.trivial_repr] * 2)
        self.layers = nn.SequentialModule(
            nn.R3Conv(self.volume, features, kernel_size=5, padding=2),
            nn.NormNonLinearity(features),
            nn.R3Conv(features, labels, kernel_size=3, padding=1),
        )

    def forward(self, x):
        return self.layers(self.volume(x)).tensor


net = Net().eval()
x = torch.randn(1, 1, 12, 12, 12)
free = {0: "batch", 2: "first", 3: "second", 4: "third"}
torch.onnx.export(net, (x,), "net.onnx", dynamo=False, input_names=["x"], dynamic_axes={"x": free})

# check
import onnxruntime  # noqa: E402

session = onnxruntime.InferenceSession("net.onnx")
x = torch.randn(2, 1, 10, 12, 14)
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
assert abs(found - net(x).detach().numpy()).max() < 1e-4
