"""Atomic writes: a file is complete or absent."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace ``path`` by ``content`` in one step: readers see the old file or the new one, never a part.

    If writing fails (disk full, interruption), ``path`` is unchanged and no temporary file remains; the ``OSError``
    names the file.

    >>> folder = Path(tempfile.mkdtemp())
    >>> write_atomic(folder / "a.txt", "all of it")
    >>> [file.name for file in folder.iterdir()]
    ['a.txt']
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _write(path, data)
    except OSError as error:  # for a full disk, the system does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, values: Any) -> None:
    """Write ``values`` as indented JSON, atomically."""
    write_atomic(path, json.dumps(values, indent=1) + "\n")


def _write(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # mkstemp restricts access to the owner
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Permissions denied to new files; the mask can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
