"""A steerable U-Net in a MONAI pipeline: MONAI's transforms, loss, metric and sliding-window inference.

Inputs may be MetaTensors; they keep their affine through the network.
"""

import torch
from monai.data import MetaTensor
from monai.inferers import SlidingWindowInferer
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.transforms import Compose, EnsureChannelFirst, NormalizeIntensity, RandSpatialCropSamples, SpatialPad
from torch import Tensor

import steerformer as sf


def scan(seed: int) -> tuple[Tensor, Tensor]:
    """A volume of blobs and the labels of their bright cores: a stand-in for a scan of yours."""
    blobs = sf.testing.blobs(
        sf.FieldType.image(sf.SO3, 1), batch=1, count=6, extent=6.0, seed=seed, dtype=torch.float32
    )
    volume = blobs.sample((28, 24, 20))[0, 0]
    return volume, (volume > 0.3).float()


def main() -> None:
    torch.manual_seed(0)
    options = {"nonlinearity": "fourier", "norm_after": "convolution", "depth": 0, "head": "scalar"}
    widths = [[[4, 2]], [[8, 4, 2]]]
    net = sf.models.build({"kind": "unet", "group": "SO3", "classes": 2, "degrees": 3, "widths": widths, **options})
    load = Compose([EnsureChannelFirst(channel_dim="no_channel"), SpatialPad(16)])
    crop = RandSpatialCropSamples((16, 16, 16), num_samples=2, random_size=False)
    crop.set_random_state(seed=0)
    loss_function, optimizer = DiceCELoss(to_onehot_y=True, softmax=True), torch.optim.AdamW(net.parameters(), lr=2e-2)
    for step in range(20):
        volume, labels = scan(seed=step)
        both = torch.cat([NormalizeIntensity()(load(volume)), load(labels)])
        patches = torch.stack(list(crop(both))).as_tensor()
        loss = loss_function(net(patches[:, :1]), patches[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    volume, labels = scan(seed=100)
    affine = torch.diag(torch.tensor([2.0, 2.0, 2.0, 1.0]))
    x = MetaTensor(NormalizeIntensity()(load(volume)).as_tensor()[None], affine=affine)
    with torch.no_grad():
        logits = SlidingWindowInferer(roi_size=(16, 16, 16), overlap=0.5, mode="gaussian")(x, net.eval())
    predicted = logits.as_tensor().argmax(dim=1, keepdim=True)
    dice = DiceMetric(include_background=False, num_classes=2)(predicted, labels[None, None].long())
    print(f"loss {loss.item():.2f}, Dice {dice.mean():.1%}, voxel spacing kept: {logits.affine.diag()[0]:g} mm")


if __name__ == "__main__":
    main()
