"""ModelNet10 from the files people have: official .off meshes, HDF5 clouds, or an .npz of clouds."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data import cache, meshes
from steerformer.data.archive import names_in, read_npz
from steerformer.data.base import DataError, Progress, ignore

CLASSES = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
SOURCES = (
    "meshes: https://modelnet.cs.princeton.edu/ (ModelNet10.zip)",
    "clouds: https://github.com/AnTao97/PointCloudDatasets (ModelNet10, HDF5)",
)
SPLITS = ("train", "test")
_CHUNK = 32


@dataclass(frozen=True)
class Clouds:
    """Where clouds come from: which files, of which kind."""

    kind: str
    files: tuple[Path, ...]

    def describe(self) -> str:
        """In a few words."""
        kinds = {"off": "meshes, .off files", "h5": "clouds, HDF5 files", "npz": "clouds, .npz files"}
        return f"{kinds[self.kind]} ({len(self.files)}), the first {self.files[0]}"

    def read(self, progress: Progress = ignore) -> dict[str, Tensor]:
        """``train_points`` (object, point, 3), ``train_labels``, and the same for ``test``."""
        readers = {"off": _read_off, "h5": _read_h5, "npz": _read_npz}
        return readers[self.kind](self.files, progress)


def find(root: Path | None) -> Clouds:
    """The clouds or meshes below ``root``; a :class:`DataError` that says what is missing."""
    advice = f"get {'; or '.join(SOURCES)}."
    if root is None:
        raise DataError(f"modelnet10 needs a root, the folder that holds it; {advice}")
    if not root.exists():
        raise DataError(f"there is no folder {root}; {advice}")
    if root.is_file():
        if root.suffix != ".npz":
            raise DataError(f"{root} is a file but no .npz; name the folder that holds it.")
        return Clouds("npz", (root,))
    if files := _find_off(root):
        return Clouds("off", files)
    if files := _find_h5(root):
        return Clouds("h5", files)
    archives = sorted(root.rglob("*.npz"))
    if len(archives) > 1:
        raise DataError(f"{root} holds several .npz files ({archives[0].name}, {archives[1].name}, ...); name one.")
    if not archives:
        raise DataError(f"{root} holds no ModelNet10; {advice}")
    return Clouds("npz", (archives[0],))


def _find_off(root: Path) -> tuple[Path, ...]:
    base = next((path.parents[1] for path in sorted(root.rglob("train/*.off"))), None)
    if base is None:
        return ()
    files: list[Path] = []
    for split in SPLITS:
        for name in CLASSES:
            there = sorted((base.parent / name / split).glob("*.off"))
            if not there:
                raise DataError(
                    f"{base.parent / name / split} is missing or holds no .off file; unpack the archive again."
                )
            files += there
    return tuple(files)


def _read_off(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    """2,048 points a mesh; what is done of them is kept, so that an interrupted preparation goes on where it was."""
    name = f"modelnet10-points-{cache.fingerprint(list(files), version=1)}"

    def sample(start: int, stop: int) -> dict[str, Tensor]:
        return {"points": meshes.sample_all(files[start:stop], first=start, count=meshes.POINTS)}

    points = cache.in_parts(name, len(files), _CHUNK, sample, "sampling points on meshes", progress)["points"]
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
            raise DataError(f"{root} holds no {split}0.h5; unpack the archive again.")
    return (*found["train"], *found["test"])


def _read_h5(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    pieces: dict[str, list[Tensor]] = {f"{split}_{key}": [] for split in SPLITS for key in ("points", "labels")}
    for done, path in enumerate(files):
        progress("reading clouds", done, len(files))
        split = "train" if "train" in path.name else "test"
        points, labels = _read_one_h5(path)
        _check(points, labels, path)
        pieces[f"{split}_points"].append(points)
        pieces[f"{split}_labels"].append(labels)
    try:
        return {key: torch.cat(parts) for key, parts in pieces.items()}
    except RuntimeError:
        raise DataError(f"{files[0].parent}: clouds of one set should have equally many points.") from None


def _read_one_h5(path: Path) -> tuple[Tensor, Tensor]:
    try:
        import h5py
    except ImportError:
        raise DataError(f"{path} needs h5py: pip install 'steerformer[hdf5]'.") from None
    try:
        with h5py.File(path, "r") as file:
            missing = [key for key in ("data", "label") if key not in file]
            if missing:
                raise DataError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(file)}.")
            points, labels = torch.from_numpy(file["data"][:]), torch.from_numpy(file["label"][:]).long().flatten()
    except OSError:
        raise DataError(f"{path} cannot be read as HDF5: it is cut short, damaged or not allowed.") from None
    names = path.with_name(f"{path.stem}_id2name.json")
    return points, (_labels_by_name(names, len(points)) if names.exists() else labels)


def _labels_by_name(path: Path, count: int) -> Tensor:
    """Labels from the list of class names that lies beside the clouds; it does not depend on an order of classes."""
    try:
        names = json.loads(path.read_text())
    except (OSError, ValueError):
        raise DataError(f"{path} is no JSON file that can be read.") from None
    if not isinstance(names, list) or len(names) != count:
        raise DataError(f"{path} should be a list of {count} names of classes, one for each cloud.")
    unknown = [name for name in names if name not in CLASSES]
    if unknown:
        raise DataError(f"{path} names the class {unknown[0]!r}, which ModelNet10 does not have.")
    return torch.tensor([CLASSES.index(name) for name in names])


def _read_npz(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    """Labels are places in the array ``classes``, a list of names; without it, in :data:`CLASSES`."""
    progress("reading clouds", 0, 1)
    path = files[0]
    arrays = read_npz(path, tuple(f"{split}_{key}" for split in SPLITS for key in ("points", "labels")))
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    named = "classes" in names_in(path)
    order = _order(read_npz(path, ("classes",))["classes"], path) if named else torch.arange(len(CLASSES))
    for split in SPLITS:
        _check(tensors[f"{split}_points"], tensors[f"{split}_labels"], path, classes=len(order))
        tensors[f"{split}_labels"] = order[tensors[f"{split}_labels"].long()]
    return tensors


def _order(names: np.ndarray, path: Path) -> Tensor:
    """The place of each name in :data:`CLASSES`."""
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
        raise DataError(f"{where}: {len(points)} clouds need as many whole labels, got shape {tuple(labels.shape)}.")
    broken = ~points.isfinite().flatten(1).all(dim=1)
    if broken.any():
        raise DataError(f"{where}: cloud {int(broken.nonzero()[0])} holds NaN or infinity.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(f"{where}: labels should be 0 to {classes - 1}, got {int(labels.max())}.")
