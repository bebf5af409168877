"""ModelNet10 from the files people have: official .off meshes, HDF5 clouds, or an .npz of clouds."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError, Progress, ignore
from steerformer.data.digits import read_npz

CLASSES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
SOURCES = (
    "meshes: https://modelnet.cs.princeton.edu/ (ModelNet10.zip)",
    "clouds: https://github.com/AnTao97/PointCloudDatasets (ModelNet10, HDF5)",
)


@dataclass(frozen=True)
class Clouds:
    """Where clouds come from: which files, of which kind."""

    kind: str
    files: tuple[Path, ...]

    def read(self, progress: Progress = ignore) -> dict[str, Tensor]:
        """``train_points`` (object, point, 3), ``train_labels``, and the same for ``test``."""
        arrays = _read_npz(self.files, progress)
        for split in ("train", "test"):
            _check(arrays[f"{split}_points"], arrays[f"{split}_labels"], self.files[0])
        return arrays


def find(root: Path | None) -> Clouds:
    """The clouds or meshes below ``root``; a :class:`DataError` that says what is missing."""
    if root is None:
        raise DataError(f"modelnet10 needs a root, the folder that holds it; get {'; or '.join(SOURCES)}.")
    if not root.exists():
        raise DataError(f"there is no folder {root}; get {'; or '.join(SOURCES)}.")
    archives = sorted(root.rglob("*.npz")) if root.is_dir() else [root]
    if not archives:
        raise DataError(f"{root} holds no ModelNet10; get {'; or '.join(SOURCES)}.")
    return Clouds("npz", (archives[0],))


def _read_npz(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    progress("reading clouds", 0, 1)
    arrays = read_npz(files[0], ("train_points", "train_labels", "test_points", "test_labels"))
    return {key: torch.from_numpy(array) for key, array in arrays.items()}


def _check(points: Tensor, labels: Tensor, where: object) -> None:
    if points.ndim != 3 or points.shape[2] != 3:
        raise DataError(f"{where}: clouds should have shape (objects, points, 3), got {tuple(points.shape)}.")
    if labels.shape != points.shape[:1]:
        raise DataError(f"{where}: {len(points)} clouds but {len(labels)} labels.")
    if not np.isfinite(points.numpy()).all():
        raise DataError(f"{where}: a cloud holds NaN or infinity.")
    if len(labels) and int(labels.max()) >= len(CLASSES):
        raise DataError(f"{where}: labels should be 0 to {len(CLASSES) - 1}, got {int(labels.max())}.")
