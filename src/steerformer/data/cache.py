"""Prepared data in a folder of their own: written whole or not at all, and checked when read."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from steerformer.data.base import DataError

Tensors = dict[str, Tensor]


def folder() -> Path:
    """Where prepared data lie: ``$STEERFORMER_CACHE``, else ``steerformer`` in the user's cache folder."""
    if chosen := os.environ.get("STEERFORMER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steerformer"


def fingerprint(files: list[Path], **parameters: Any) -> str:
    """A short name for files (by place, size and time of change) and for what is made of them."""
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = json.dumps([stats, parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def prepared(name: str, make: Callable[[], Tensors]) -> Tensors:
    """The tensors stored under ``name``; made and stored if they are not there, or not as they were written."""
    path = folder() / f"{name}.safetensors"
    found = read(path)
    if found is None:
        found = make()
        write(path, found)
    return found


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


def write(path: Path, tensors: Tensors) -> None:
    """Store tensors, and beside them their checksum."""
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".sha256").unlink(missing_ok=True)
        _replace(path, data)
        _replace(path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest().encode())


def sha256(path: Path) -> str:
    """Checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; STEERFORMER_CACHE names another folder for prepared data."
        ) from None
