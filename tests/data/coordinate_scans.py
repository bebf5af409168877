"""Scans whose voxels hold their own coordinates: an oracle for patches, padding and rotation."""

from functools import cache
from pathlib import Path

import torch

from data.scan_files import blobs
from steerformer.data import SegmentationDataConfig
from steerformer.data.cases import CaseFiles, load_cases
from steerformer.data.dataset import no_progress
from steerformer.io.scans import Scan

CLASSES = ("background", "rim", "core")
SHAPE = (12, 13, 10)
SPACING = (1.0, 0.5, 2.0)


@cache
def labeled_scan(number, shape=SHAPE, spacing=SPACING):
    """Channels: 1, then the coordinates in millimeters. Padding has less than 1 in the first, even interpolated."""
    spacing = spacing[: len(shape)]
    axes = [torch.arange(n, dtype=torch.float32) * step for n, step in zip(shape, spacing, strict=True)]
    x = torch.stack([torch.ones(shape), *torch.meshgrid(*axes, indexing="ij")])
    labels = torch.from_numpy(blobs(shape, seed=number, classes=3)[1])
    return Scan(x, spacing, Path(f"case {number}"), "volume" if len(shape) == 3 else "image", labels=labels)


def load_scans(folder, count=8, *, shapes=(SHAPE,), spacing=SPACING, **options):
    """Splits of ``count`` scans, whose shapes alternate between ``shapes``."""
    cases = []
    for number in range(count):
        path = folder / f"{number}.txt"
        path.exists() or path.touch()
        scan = labeled_scan(number, shapes[number % len(shapes)], spacing)
        cases.append(CaseFiles(scan.name, (path,), lambda scan=scan: scan))
    config = SegmentationDataConfig(**{"normalize": "none", "validation": 2, "test": 2} | options)
    return load_cases(cases, CLASSES, config, no_progress, where="here")


def voxels(x, spacing):
    """The voxel of the scan that each voxel of a sample shows."""
    return (x[1:].movedim(0, -1) / torch.tensor(spacing)).round().long()


def look_up(labels, where):
    """Labels (\\*space) at voxels (..., dim)."""
    return labels[tuple(where.unbind(-1))]
