"""Train one small network with each kernel family on rotated digits, for docs/kernel_families.md."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steerformer.fields import FieldType
from steerformer.groups import SO2
from steerformer.kernels import Family
from steerformer.kernels.voxels import Normalization
from steerformer.nn import AvgPool, BatchNorm, Conv, Invariants, NormReLU
from steerformer.testing import blobs, equivariance_error

TRAIN, TEST, EPOCHS, BATCH = 4000, 5000, 6, 50


@dataclass(frozen=True)
class Choice:
    """Kernel options of one network."""

    kernel_family: Family
    max_impurity: float
    normalization: Normalization = "norm"
    kernel_size: int = 5


CHOICES = [
    Choice("sampled", 0.1),
    Choice("fitted", 1e-3),
    Choice("fitted", 1e-2),
    Choice("fitted", 1e-1),
    Choice("purest", 1e-2),
    Choice("fitted", 1e-2, "response"),
    Choice("purest", 1e-3),
    Choice("sampled", 0.1, kernel_size=7),
    Choice("fitted", 1e-2, kernel_size=7),
    Choice("purest", 1e-2, kernel_size=7),
]


def network(choice: Choice, widths: tuple[int, int, int] = (6, 10, 16), degrees: int = 4) -> nn.Sequential:
    """Three convolutions, two poolings, a convolution over the remaining grid, invariants and a head of two layers."""
    image = FieldType.image(SO2, 1)
    types = [FieldType(SO2, (width,) * degrees) for width in widths]
    options = asdict(choice)
    layers: list[nn.Module] = []
    for before, after in zip([image, *types[:-1]], types, strict=True):
        layers += [Conv(before, after, **options), BatchNorm(after), NormReLU(after, bias=-0.7)]
        layers += [AvgPool(after, kernel_size=2)] if after != types[-1] else []
    options |= {"kernel_size": 7, "padding": 0}  # the grid that remains of 28 after two poolings
    features = FieldType(SO2, (64,))
    layers += [Conv(types[-1], features, **options), BatchNorm(features), Invariants(features)]
    head = [nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers, *head)


def rotated_digits(path: Path, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``TRAIN`` training and ``TEST`` test digits of an MNIST .npz file, each rotated by a random angle."""
    with np.load(path) as data:
        sets = [(data[f"{part}_images"], data[f"{part}_labels"]) for part in ("train", "test")]
    generator = torch.Generator().manual_seed(seed)
    found: list[Tensor] = []
    image = FieldType.image(SO2, 1)
    for (images, labels), count in zip(sets, (TRAIN, TEST), strict=True):
        chosen = torch.randperm(len(images), generator=generator)[:count].numpy()
        upright = torch.from_numpy(images[chosen]).float()[:, None] / 255
        angles = (2 * math.pi * torch.rand(count, generator=generator)).tolist()
        rotated = [image.rotate(x[None], SO2.rotation(angle)) for x, angle in zip(upright, angles, strict=True)]
        found += [(torch.cat(rotated) - 0.13) / 0.31, torch.from_numpy(labels[chosen]).long()]
    return found[0], found[1], found[2], found[3]


def train_once(choice: Choice, digits: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> dict[str, float]:
    """Train one network; returns accuracy, equivariance error of the logits, seconds and number of parameters."""
    images, labels, test_images, test_labels = digits
    torch.manual_seed(seed)
    net = network(choice)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=1e-3)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    start = time.perf_counter()
    for chosen in _batches(len(images)):
        optimizer.zero_grad()
        F.cross_entropy(net(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - start
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(batch) for batch in test_images.split(500)])
    return {
        "accuracy": (logits.argmax(dim=1) == test_labels).double().mean().item(),
        "error": _logit_error(net),
        "seconds": seconds,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
    }


def run_all(data: Path, results: Path, *, seeds: int = 3, progress: Callable[[str], None] = lambda step: None) -> None:
    """Train all choices with each seed; appends one JSON line per run and skips runs that have one."""
    digits = rotated_digits(data)
    done = {(row["choice"], row["seed"]) for row in read_results(results)}
    for seed in range(seeds):
        for choice in CHOICES:
            name = json.dumps(asdict(choice))
            if (name, seed) in done:
                continue
            row = {"choice": name, "seed": seed, **train_once(choice, digits, seed)}
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            progress(
                f"seed {seed}, {choice.kernel_family} {choice.max_impurity:g} {choice.kernel_size}: "
                f"{row['accuracy']:.2%}"
            )


def read_results(results: Path) -> list[dict[str, Any]]:
    """Results of earlier runs, if any."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _batches(count: int) -> Iterator[Tensor]:
    for _ in range(EPOCHS):
        yield from torch.randperm(count)[: count // BATCH * BATCH].split(BATCH)


def _logit_error(net: nn.Sequential) -> float:
    """Relative change of the logits when smooth scenes are rotated by 17 and 45 degrees."""
    scene = blobs(FieldType.image(SO2, 1), batch=64, sigma=2.0, extent=5.0, dtype=torch.float32)
    logits = FieldType.image(SO2, 10)
    rotations = [SO2.rotation(math.radians(angle)) for angle in (17, 45)]
    errors = [equivariance_error(net, R, scene=scene, size=28, out_type=logits).total for R in rotations]
    return sum(errors) / len(errors)
