"""The cache of preprocessed data: safetensors files, written atomically and verified when read."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from steerformer.data.dataset import Progress
from steerformer.io.atomic import write_atomic
from steerformer.io.errors import DataError

Tensors = dict[str, Tensor]
_ATTEMPTS = 5


def cache_folder() -> Path:
    """``$STEERFORMER_CACHE``, else ``steerformer`` in the user's cache folder."""
    if chosen := os.environ.get("STEERFORMER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steerformer"


def fingerprint(files: list[Path], **parameters: Any) -> str:
    """A short key for files (path, size, modification time) and the parameters of their preprocessing."""
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([stats, parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cached(name: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors cached under ``name``; made and written if they are missing or damaged."""
    path = cache_folder() / f"{name}.safetensors"
    found = read(path)
    if found is None:
        found = make()
        write(path, found)
    return found


def cached_file(name: str, make: Callable[[], Tensors]) -> Path:
    """The file with the tensors cached under ``name``, made and written if it is missing or truncated.

    For tensors that are read in parts: ``safetensors.safe_open``. The checksum is not verified, since that would mean
    reading the whole file.
    """
    path = cache_folder() / f"{name}.safetensors"
    try:
        with safe_open(path, framework="pt"):
            return path
    except (FileNotFoundError, SafetensorError):
        write(path, make(), checksum=False)
        return path


def cached_in_parts(
    name: str, count: int, step: int, make: Callable[[int, int], Tensors], what: str, progress: Progress
) -> Tensors:
    """Tensors of ``count`` items, made by ``make(start, stop)`` for ``step`` items at a time.

    Finished parts are kept until all are done, so interrupted preprocessing resumes. A :class:`DataError` deletes
    them: repaired files have another fingerprint.
    """
    path = cache_folder() / f"{name}.safetensors"
    if (whole := read(path)) is not None:
        return whole
    folder = cache_folder() / f"{name}.parts"
    parts = []
    for start in range(0, count, step):
        progress(what, start, count)
        stop = min(start + step, count)
        parts.append(cached(f"{folder.name}/{start:07d}-{stop:07d}", partial(_make_part, make, start, stop, folder)))
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    write(path, whole)
    shutil.rmtree(folder, ignore_errors=True)
    return whole


def _make_part(make: Callable[[int, int], Tensors], start: int, stop: int, folder: Path) -> Tensors:
    try:
        return make(start, stop)
    except DataError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def is_cached(name: str) -> bool:
    """Whether the cache has tensors under ``name``."""
    return (cache_folder() / f"{name}.safetensors").exists()


def read(path: Path) -> Tensors | None:
    """Tensors of a file that :func:`write` wrote; ``None`` if it is missing or damaged."""
    checksum = path.with_suffix(".sha256")
    try:
        if checksum.read_text() != sha256(path):
            return None
        return load_file(path)
    except (FileNotFoundError, UnicodeDecodeError, SafetensorError):
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None


def write(path: Path, tensors: Tensors, *, checksum: bool = True) -> None:
    """Write tensors and, with ``checksum``, a .sha256 file next to them."""
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    with _explained(path):
        for attempt in range(_ATTEMPTS):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".sha256").unlink(missing_ok=True)
                write_atomic(path, data)
                if checksum:
                    write_atomic(path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest())
                return
            except FileNotFoundError:  # another process finished the same data and removed the folder
                if attempt == _ATTEMPTS - 1:
                    raise


def sha256(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; set STEERFORMER_CACHE to another folder for preprocessed data."
        ) from None
