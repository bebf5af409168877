"""Segmentation models with known responses to rotations, and a scan for them."""

from pathlib import Path

import torch
from torch import nn

from steerformer import FieldType, models
from steerformer.audit import check, run_check
from steerformer.fields import voxel_coordinates
from steerformer.io.scans import Scan

SIZES = {2: (15, 18), 3: (9, 11, 10)}


class Bright(nn.Module):
    """Class 1 where the input is bright: equivariant."""

    def __init__(self, group):
        super().__init__()
        self.in_type, self.out_type = FieldType.image(group, 1), FieldType.image(group, 2)

    def forward(self, x):
        return 20 * torch.cat([0.5 - x, x - 0.5], dim=1)


class FirstHalf(Bright):
    """Class 1 in the first half of the grid, whatever the input: not equivariant."""

    def forward(self, x):
        ramp = torch.linspace(1, -1, x.shape[2]).view(-1, *[1] * (x.ndim - 3)).expand(x.shape[2:])
        return 20 * torch.stack([-ramp, ramp])[None]


def ball(group, size=None, *, spacing=None, radius=3.2):
    """A bright ball off the center with a smooth surface, and its labels."""
    size, spacing = size or SIZES[group.dim], spacing or (1.0,) * group.dim
    places = voxel_coordinates(size, spacing) - torch.tensor([1.0] + [0.0] * (group.dim - 1)).double()
    x = (radius + 0.5 - places.norm(dim=-1)).clamp(0, 1).float()[None]
    return scan("ball", x, (x[0] > 0.5).long(), spacing)


def scan(name, x, labels, spacing):
    return Scan(x, spacing, Path(name), "image" if labels.ndim == 2 else "volume", labels=labels)


def shrink_checks(monkeypatch):
    """Check models on small pieces of cases and with one random rotation, to save time."""
    monkeypatch.setattr(check, "_LAYER_SIDE", {2: 24, 3: 12})
    monkeypatch.setattr(check, "_LAYER_SAMPLES", 2)
    monkeypatch.setattr(run_check, "_RANDOM", 1)


def unet(group):
    """A small steerable U-Net with attention."""
    layers = {"degrees": 2, "widths": [[2], [2]], "kernel_size": 3, "num_heads": 2, "classes": 2, "head": "scalar"}
    return models.build({"kind": "unet", "group": group.name, **layers}).eval()
