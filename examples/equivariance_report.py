"""Is my model equivariant? Errors under rotations of the grid, at other angles, per degree, and a figure.

Works for any module with `in_type` and `out_type`, or if they are given: for models of your own, too.
"""

import math
import sys
from pathlib import Path

import torch
from torch import nn

import steerformer as sf


def my_model(*, antialiased: bool) -> nn.Sequential:
    image, features = sf.FieldType.image(sf.SO2, 1), sf.FieldType(sf.SO2, (8, 4, 2))
    return nn.Sequential(
        sf.nn.Conv(image, features, kernel_size=7),
        sf.nn.FourierReLU(features),
        sf.nn.AvgPool(features, kernel_size=2, antialiased=antialiased),
        sf.nn.Conv(features, features, kernel_size=5),
    )


def main(figure: Path | None = None) -> None:
    torch.manual_seed(0)
    models = {"plain pooling": my_model(antialiased=False), "antialiased pooling": my_model(antialiased=True)}
    for name, model in models.items():
        model.double().eval()
        sf.testing.assert_equivariant(model, size=30)  # exact under rotations of the grid, or it raises
        for angle in (15, 45):
            rotation = sf.SO2.rotation(math.radians(angle))
            print(f"{name}, {angle} degrees: {sf.testing.equivariance_error(model, rotation, size=30)}")
    plain = nn.Conv2d(1, 8, 7, padding=3).double()
    types = {"in_type": sf.FieldType.image(sf.SO2, 1), "out_type": sf.FieldType.image(sf.SO2, 8)}
    rotation = sf.SO2.rotation(math.pi / 2)
    print(f"nn.Conv2d, 90 degrees: {sf.testing.equivariance_error(plain, rotation, size=31, **types)}")
    if figure:
        sf.viz.equivariance(models["antialiased pooling"], size=30).savefig(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
