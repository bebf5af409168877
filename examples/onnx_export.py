"""Export a network of your own to ONNX for any grid size, and check its equivariance in onnxruntime."""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from torch import Tensor, nn

import steerformer as sf


class VectorNet(nn.Module):
    """An image to one vector for every pixel, such as a flow."""

    def __init__(self) -> None:
        super().__init__()
        self.in_type, features = sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, "8x0+4x1")
        self.out_type = sf.FieldType.vectors(sf.SO2, 1)
        self.layers = nn.Sequential(
            sf.nn.Conv(self.in_type, features, kernel_size=5),
            sf.nn.BatchNorm(features),
            sf.nn.NormReLU(features, bias=-0.1),
            sf.nn.Conv(features, self.out_type, kernel_size=5),
        )

    def forward(self, x: Tensor) -> Tensor:
        return sf.to_cartesian(self.layers(x), self.out_type)[:, 0]  # (batch, 2, height, width)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = sf.export(VectorNet(), Path(folder) / "net.onnx", size=16, free_size=True)
        session = onnxruntime.InferenceSession(found.path)
    print(f"largest difference from PyTorch: {found.difference:.1e}")
    x = np.random.default_rng(0).normal(size=(1, 1, 21, 30)).astype(np.float32)
    upright = session.run(None, {"x": x})[0]
    rotated = session.run(None, {"x": np.rot90(x, axes=(2, 3)).copy()})[0]
    expected = np.rot90(upright, axes=(2, 3))
    expected = np.stack([-expected[:, 1], expected[:, 0]], axis=1)  # the vectors are rotated, too
    print(f"equivariance error of the file at 90 degrees: {abs(rotated - expected).max() / abs(upright).max():.1e}")


if __name__ == "__main__":
    main()
