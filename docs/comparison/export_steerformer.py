import torch

import steerformer as sf

volume, labels = sf.FieldType.image(sf.SO3, 1), sf.FieldType.image(sf.SO3, 2)
features = sf.FieldType(sf.SO3, (8, 4, 2))
net = torch.nn.Sequential(
    sf.nn.Conv(volume, features, kernel_size=5),
    sf.nn.NormReLU(features),
    sf.nn.Conv(features, labels, kernel_size=3),
)
x = torch.randn(1, 1, 12, 12, 12)
free = {0: "batch", 2: "first", 3: "second", 4: "third"}
torch.onnx.export(net.eval(), (x,), "net.onnx", dynamo=True, dynamic_shapes=(free,))

# check
import onnxruntime  # noqa: E402

session = onnxruntime.InferenceSession("net.onnx")
x = torch.randn(2, 1, 10, 12, 14)
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
assert abs(found - net.eval()(x).detach().numpy()).max() < 1e-4
