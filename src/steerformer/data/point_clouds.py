"""Point clouds of ModelNet10 from all common sources: official .off meshes, HDF5 files, or an .npz."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data import cache, meshes
from steerformer.data.dataset import Progress, no_progress
from steerformer.io.archives import array_names, find_npz, read_npz
from steerformer.io.errors import DataError

CLASSES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
SOURCES = (
    "meshes: https://modelnet.cs.princeton.edu/ (ModelNet10.zip)",
    "point clouds: https://github.com/AnTao97/PointCloudDatasets (ModelNet10, HDF5)",
)
SPLITS = ("train", "test")
_CHUNK = 32


@dataclass(frozen=True)
class PointClouds:
    """The files of the point clouds and their format."""

    kind: str
    files: tuple[Path, ...]

    def describe(self) -> str:
        """One line for users."""
        kinds = {"off": "meshes, .off files", "h5": "point clouds, HDF5 files", "npz": "point clouds, .npz files"}
        return f"{kinds[self.kind]} ({len(self.files)}), the first {self.files[0]}"

    def read(self, progress: Progress = no_progress) -> dict[str, Tensor]:
        """``train_points`` (object, point, 3), ``train_labels``, and the same for ``test``."""
        readers = {"off": _read_off, "h5": _read_h5, "npz": _read_npz}
        return readers[self.kind](self.files, progress)


def find(root: Path | None) -> PointClouds:
    """The point clouds or meshes below ``root``; a :class:`DataError` that says what is missing."""
    advice = f"get {'; or '.join(SOURCES)}."
    if root is None:
        raise DataError(f"modelnet10 needs a root, the folder that holds it; {advice}")
    if not root.exists():
        raise DataError(f"there is no folder {root}; {advice}")
    if root.is_file():
        if root.suffix != ".npz":
            raise DataError(f"{root} is not an .npz file; set root to one, or to a folder.")
        return PointClouds("npz", (root,))
    if files := _find_off(root):
        return PointClouds("off", files)
    if files := _find_h5(root):
        return PointClouds("h5", files)
    archive = find_npz(root)
    if archive is None:
        raise DataError(f"there is no ModelNet10 in {root}; {advice}")
    return PointClouds("npz", (archive,))


def _find_off(root: Path) -> tuple[Path, ...]:
    base = next((path.parents[1] for path in sorted(root.rglob("train/*.off"))), None)
    if base is None:
        return ()
    files: list[Path] = []
    for split in SPLITS:
        for name in CLASSES:
            folder = base.parent / name / split
            found = sorted(folder.glob("*.off"))
            if not found:
                raise DataError(f"there are no .off files in {folder}; unpack the archive again.")
            files += found
    return tuple(files)


def _read_off(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    """Sample 2,048 points on each mesh; interrupted sampling resumes."""
    name = f"modelnet10-points-{cache.fingerprint(list(files), version=1)}"

    def sample(start: int, stop: int) -> dict[str, Tensor]:
        return {"points": meshes.sample_meshes(files[start:stop], first=start, count=meshes.POINTS)}

    points = cache.cached_in_parts(name, len(files), _CHUNK, sample, "sampling points on meshes", progress)["points"]
    labels = torch.tensor([CLASSES.index(path.parents[1].name) for path in files])
    tensors = {}
    for split in SPLITS:
        chosen = torch.tensor([path.parent.name == split for path in files])
        tensors[f"{split}_points"], tensors[f"{split}_labels"] = points[chosen], labels[chosen]
    return tensors


def _find_h5(root: Path) -> tuple[Path, ...]:
    found = {split: sorted(root.rglob(f"*{split}*.h5")) for split in SPLITS}
    if not any(found.values()):
        return ()
    for split, files in found.items():
        if not files:
            raise DataError(f"there is no {split}0.h5 in {root}; unpack the archive again.")
    return (*found["train"], *found["test"])


def _read_h5(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    pieces: dict[str, list[Tensor]] = {f"{split}_{key}": [] for split in SPLITS for key in ("points", "labels")}
    for done, path in enumerate(files):
        progress("reading point clouds", done, len(files))
        split = "train" if "train" in path.name else "test"
        points, labels = _read_one_h5(path)
        _check(points, labels, path)
        pieces[f"{split}_points"].append(points)
        pieces[f"{split}_labels"].append(labels)
    try:
        return {key: torch.cat(parts) for key, parts in pieces.items()}
    except RuntimeError:
        raise DataError(f"{files[0].parent}: all clouds of a split should have the same number of points.") from None


def _read_one_h5(path: Path) -> tuple[Tensor, Tensor]:
    try:
        import h5py
    except ImportError:
        raise DataError(f"{path} needs h5py: pip install h5py.") from None
    try:
        with h5py.File(path, "r") as file:
            missing = [key for key in ("data", "label") if key not in file]
            if missing:
                raise DataError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(file)}.")
            points, labels = torch.from_numpy(file["data"][:]), torch.from_numpy(file["label"][:]).long().flatten()
    except OSError:
        raise DataError(f"{path} cannot be read as HDF5: it is truncated, damaged or not readable.") from None
    names = path.with_name(f"{path.stem}_id2name.json")
    return points, (_labels_by_name(names, len(points)) if names.exists() else labels)


def _labels_by_name(path: Path, count: int) -> Tensor:
    """Labels from a list of class names, which do not depend on the order of classes."""
    try:
        names = json.loads(path.read_text())
    except (OSError, ValueError):
        raise DataError(f"{path} cannot be read as JSON.") from None
    if not isinstance(names, list) or len(names) != count:
        raise DataError(f"{path} should be a list of {count} class names, one for each cloud.")
    unknown = [name for name in names if name not in CLASSES]
    if unknown:
        raise DataError(f"{path} names the class {unknown[0]!r}, which ModelNet10 does not have.")
    return torch.tensor([CLASSES.index(name) for name in names])


def _read_npz(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    """Labels index the names in the array ``classes`` or, without it, :data:`CLASSES`."""
    progress("reading point clouds", 0, 1)
    path = files[0]
    arrays = read_npz(path, tuple(f"{split}_{key}" for split in SPLITS for key in ("points", "labels")))
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    named = "classes" in array_names(path)
    indices = _class_indices(read_npz(path, ("classes",))["classes"], path) if named else torch.arange(len(CLASSES))
    for split in SPLITS:
        _check(tensors[f"{split}_points"], tensors[f"{split}_labels"], path, classes=len(indices))
        tensors[f"{split}_labels"] = indices[tensors[f"{split}_labels"].long()]
    return tensors


def _class_indices(names: np.ndarray, path: Path) -> Tensor:
    """Index of each name in :data:`CLASSES`."""
    found = [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names.ravel().tolist()]
    unknown = [name for name in found if name not in CLASSES]
    if unknown:
        raise DataError(f"{path} names the class {unknown[0]!r}, which ModelNet10 does not have.")
    return torch.tensor([CLASSES.index(name) for name in found], dtype=torch.long)


def _check(points: Tensor, labels: Tensor, where: Path, *, classes: int = len(CLASSES)) -> None:
    if points.ndim != 3 or points.shape[2] != 3 or not points.is_floating_point() or not points.shape[1]:
        shape = tuple(points.shape)
        raise DataError(f"{where}: clouds should be numbers of shape (objects, points, 3), got {points.dtype} {shape}.")
    if labels.shape != points.shape[:1] or labels.is_floating_point():
        raise DataError(f"{where}: {len(points)} clouds need as many integer labels, got shape {tuple(labels.shape)}.")
    broken = ~points.isfinite().flatten(1).all(dim=1)
    if broken.any():
        raise DataError(f"{where}: cloud {int(broken.nonzero()[0])} holds NaN or infinity.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(f"{where}: labels should be 0 to {classes - 1}, got {int(labels.max())}.")
