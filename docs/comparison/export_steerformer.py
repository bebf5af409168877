import torch

import steerformer as sf

volume, labels = sf.FieldType.image(sf.SO3, 1), sf.FieldType.image(sf.SO3, 2)
features = sf.FieldType(sf.SO3, (8, 4, 2))
net = torch.nn.Sequential(
    sf.nn.Conv(volume, features, kernel_size=5),
    sf.nn.NormReLU(features),
    sf.nn.Conv(features, labels, kernel_size=3),
)
sf.export(net, "net.onnx", size=12, free_size=True)

# check
import onnxruntime  # noqa: E402

session = onnxruntime.InferenceSession("net.onnx")
x = torch.randn(2, 1, 10, 12, 14)
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
assert abs(found - net.eval()(x).detach().numpy()).max() < 1e-4
