"""Prepared data in a folder of their own: written whole or not at all, and checked when read."""

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

from steerformer.data.base import DataError, Progress
from steerformer.files import write_whole

Tensors = dict[str, Tensor]
_ATTEMPTS = 5


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


def kept(name: str, make: Callable[[], Tensors]) -> Path:
    """The file with the tensors stored under ``name``, made and stored if it is not there.

    For tensors of which one wants to read parts: see :func:`opened`. That all of the file is there is checked, but
    not its checksum, which would mean reading all of it.
    """
    path = folder() / f"{name}.safetensors"
    try:
        with opened(path):
            return path
    except (FileNotFoundError, SafetensorError):
        write(path, make(), checksum=False)
        return path


def opened(path: Path) -> Any:
    """A file of tensors, to be closed again; ``get_tensor`` and ``get_slice`` read no more than they are asked for."""
    return safe_open(path, framework="pt")


def in_parts(
    name: str, count: int, step: int, make: Callable[[int, int], Tensors], what: str, progress: Progress
) -> Tensors:
    """Tensors of ``count`` items, made by ``make(start, stop)`` for ``step`` items at a time.

    Finished parts are kept until all are there, so that an interrupted preparation goes on where it was. Bad data end
    it for good: once they are repaired, they have another name.
    """
    path = folder() / f"{name}.safetensors"
    if (whole := read(path)) is not None:
        return whole
    place = folder() / f"{name}.parts"
    parts = []
    for start in range(0, count, step):
        progress(what, start, count)
        stop = min(start + step, count)
        parts.append(prepared(f"{place.name}/{start:07d}-{stop:07d}", partial(_make, make, start, stop, place)))
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    write(path, whole)
    shutil.rmtree(place, ignore_errors=True)
    return whole


def _make(make: Callable[[int, int], Tensors], start: int, stop: int, place: Path) -> Tensors:
    try:
        return make(start, stop)
    except DataError:
        shutil.rmtree(place, ignore_errors=True)
        raise


def has(name: str) -> bool:
    """Whether something is stored under ``name``."""
    return (folder() / f"{name}.safetensors").exists()


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
    """Store tensors, and beside them their checksum if wanted."""
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    with _explained(path):
        for attempt in range(_ATTEMPTS):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".sha256").unlink(missing_ok=True)
                write_whole(path, data)
                if checksum:
                    write_whole(path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest())
                return
            except FileNotFoundError:  # another process was done with the same data and took the folder away
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
            f"cannot write {path}: {error.strerror}; STEERFORMER_CACHE names another folder for prepared data."
        ) from None
